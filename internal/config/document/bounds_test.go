package document

import "testing"

func TestBoundOfFiles(t *testing.T) {
	b := NewBounds()
	b.files = 0
	if err := b.Take(1); err == nil || err.Error() != "more than 10000 files" {
		t.Errorf("files: %v", err)
	}
}
