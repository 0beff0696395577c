package proc

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParse(t *testing.T) {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	p, ok := parseStat(os.Getpid(), text)
	if !ok || p.Group != unix.Getpgrp() || p.Parent != os.Getppid() || p.Dead() || p.Kernel() || !p.Executed() || p.Start == 0 || p.env == "0" {
		t.Errorf("%+v, %v of %s", p, ok, text)
	}
	p, ok = parseStat(7, []byte("7 (a) Z 1 (b) S 12 34 34 0 -1 64"+strings.Repeat(" 8", 43)+"\n"))
	if want := (Process{PID: 7, Parent: 12, Group: 34, Start: 8, state: 'S', flags: 64, env: "8"}); !ok || p != want || p.Executed() {
		t.Errorf("got %+v, want %+v", p, want)
	}
	for _, bad := range []string{"", "7 (a", "7 (a) S", "7 (a) S x y z", "7 (a) S" + strings.Repeat(" x", 60)} {
		if _, ok := parseStat(7, []byte(bad)); ok {
			t.Errorf("%q was read", bad)
		}
	}
}

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
