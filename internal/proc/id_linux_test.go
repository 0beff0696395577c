package proc

import (
	"strings"
	"testing"
)

// TestLifeOf: a process is known by more than its number, and those of other machines are not judged.
func TestLifeOf(t *testing.T) {
	self := ID()
	if self == "" || LifeOf(self) != Alive {
		t.Errorf("this process %q: %v", self, LifeOf(self))
	}
	if other := self[:strings.LastIndexByte(self, '/')] + "/1"; LifeOf(other) != Gone { // the number is used again
		t.Errorf("%q: %v", other, LifeOf(other))
	}
	for _, id := range []string{"", "elsewhere/1/1", "x/" + self} {
		if LifeOf(id) != Unknown {
			t.Errorf("%q: %v", id, LifeOf(id))
		}
	}
}
