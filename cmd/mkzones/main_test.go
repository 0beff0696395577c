package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// folder writes a zone folder, whose files have the given time of change.
func folder(t *testing.T, files map[string]string, changed time.Time) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, changed, changed); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSameDataGivesTheSameBytes(t *testing.T) {
	files := map[string]string{"tzdata.zi": "# version 2026f\n", "Europe/Berlin": "TZif b", "Asia/Tokyo": "TZif t"}
	first, err := packArchive(folder(t, files, time.Unix(1e9, 0)))
	if err != nil {
		t.Fatal(err)
	}
	files["zone.tab"], files["right/Asia/Tokyo"], files["localtime"] = "# no zone", "TZif r", "TZif l"
	again, err := packArchive(folder(t, files, time.Unix(2e9, 0)))
	if err != nil || !bytes.Equal(first, again) {
		t.Errorf("%d and %d bytes, which differ, %v", len(first), len(again), err)
	}
	files["Asia/Tokyo"] = "TZif u"
	if other, err := packArchive(folder(t, files, time.Unix(2e9, 0))); err != nil || bytes.Equal(first, other) {
		t.Errorf("other data gives the same bytes, or %v", err)
	}
}

func TestFolderWithoutVersionIsRefused(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"none":  {"Asia/Tokyo": "TZif t"},
		"words": {"Asia/Tokyo": "TZif t", "+VERSION": "the newest"},
	} {
		if _, err := packArchive(folder(t, files, time.Unix(1e9, 0))); err == nil || !strings.Contains(err.Error(), "version") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
