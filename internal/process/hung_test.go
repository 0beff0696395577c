//go:build linux

package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/hungfs"
	"github.com/cronclave/cronclave/internal/proc"
)

// TestStartsBesideOneThatHangs: a program on a mount that does not answer costs its own run, and no other start of the process.
func TestStartsBesideOneThatHangs(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		dead := hungfs.New(t, map[string]string{"program": "#!/bin/sh\necho run\n"})
		program := dead.Dir + "/program"
		if e := h.Run(t.Context(), t.Context(), Spec{Name: "r", Argv: []string{program}, Keep: 100}); e.Err != nil || string(e.Tail) != "run\n" {
			t.Fatalf("on a mount that answers: %+v", e)
		}
		dead.HangOpen()
		for round := range 2 {
			kill, killNow := context.WithCancel(t.Context())
			defer killNow()
			begins := make(chan struct{})
			ended := make(chan Exit, 1)
			go func() {
				ended <- h.Run(t.Context(), kill, Spec{Name: "hung", Job: "j", Argv: []string{program}, Begin: func() error { close(begins); return nil },
					Started: func() { t.Error("started") }})
			}()
			if round == 0 {
				<-begins
				for range 8 {
					if e := sh(t, h, "exit 3"); e.Code != 3 {
						t.Fatalf("another command beside it: %+v", e)
					}
				}
				if err := h.Probe(); err != nil {
					t.Error(err)
				}
				select {
				case e := <-ended:
					t.Fatalf("it did not hang: %+v", e)
				default:
				}
				killNow()
			}
			select {
			case e := <-ended:
				if !errors.Is(e.Err, ErrNotStarted) || !strings.Contains(e.Err.Error(), "executing "+program+" (mount "+dead.Dir+", fuse hungfs)") {
					t.Errorf("round %d: %v", round, e.Err)
				}
			case <-time.After(patience):
				t.Fatal("it is not given up")
			}
			if n := cgroupsOf(t, h); n > 1 {
				t.Errorf("round %d: %d cgroups are left, and one start hangs", round, n)
			}
		}
		dead.Answer()
		eventually(t, "the program can be started again", func() bool { return !h.stuck.has(startKey(&exec.Cmd{Path: program})) })
		if e := h.Run(t.Context(), t.Context(), Spec{Name: "r", Argv: []string{program}, Keep: 100}); e.Err != nil || string(e.Tail) != "run\n" {
			t.Errorf("afterwards: %+v", e)
		}
		if n := cgroupsOf(t, h); n != 0 {
			t.Errorf("%d cgroups are left", n)
		}
		for _, p := range proc.Children() {
			if !p.Executed() {
				t.Errorf("process %d was forked and has executed nothing", p.PID)
			}
		}
	})
}

// cgroupsOf returns the number of cgroups of runs.
func cgroupsOf(t *testing.T, h *Host) (n int) {
	t.Helper()
	if h.cells.base == nil {
		return 0
	}
	entries, err := os.ReadDir(h.cells.base.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			n++
		}
	}
	return n
}

// TestStuckTwice: of two starts that hang at the same time, the end of one does not release the other.
func TestStuckTwice(t *testing.T) {
	var s stuck
	first, second := make(chan struct{}), make(chan struct{})
	s.holdStart("key", func() { <-first })
	s.holdStart("key", func() { <-second })
	number := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.all["key"]
	}
	close(first)
	eventually(t, "one is gone", func() bool { return number() == 1 })
	if !s.has("key") {
		t.Error("the second is forgotten")
	}
	close(second)
	if !s.wait(patience) || s.has("key") {
		t.Error("the second is not gone")
	}
}

// TestProbeBesideSlowStarts: a probe needs none of the turns of starts.
func TestProbeBesideSlowStarts(t *testing.T) {
	h := newTestHost(t, false)
	for range startsAtOnce {
		h.turns <- struct{}{}
	}
	if err := h.Probe(); err != nil {
		t.Error(err)
	}
}

// TestFoldersThatHang: a folder on such a mount, and a program that can't even be looked at, cost their own run, and the error names them and the mount.
func TestFoldersThatHang(t *testing.T) {
	h := newTestHost(t, false)
	dead := hungfs.New(t, map[string]string{"program": "#!/bin/sh\n"})
	for name, tt := range map[string]struct {
		hang func()
		spec Spec
		says string
	}{
		"entering a folder":     {dead.HangOpen, Spec{Argv: []string{"/bin/true"}, Dir: dead.Dir}, "in " + dead.Dir + " (mount " + dead.Dir},
		"looking at a folder":   {dead.Hang, Spec{Argv: []string{"/bin/true"}, Dir: dead.Dir}, "dir " + dead.Dir + ": its file system does not answer (mount " + dead.Dir},
		"looking at a program":  {dead.Hang, Spec{Argv: []string{dead.Dir + "/program"}}, dead.Dir + "/program: its file system does not answer (mount " + dead.Dir},
		"looking along a PATH":  {dead.Hang, Spec{Argv: []string{"true"}, Env: []string{"PATH=" + dead.Dir + ":/bin"}}, dead.Dir + "/true: its file system does not answer"},
		"a program of its name": {dead.HangOpen, Spec{Argv: []string{"program"}, Env: []string{"PATH=" + dead.Dir}}, "executing " + dead.Dir + "/program (mount"},
	} {
		t.Run(name, func(t *testing.T) {
			dead.Answer()
			tt.hang()
			defer dead.Answer()
			stop, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			ended := make(chan Exit, 1)
			go func() { ended <- h.Run(stop, stop, tt.spec) }()
			select {
			case e := <-ended:
				if !errors.Is(e.Err, ErrNotStarted) || !strings.Contains(e.Err.Error(), tt.says) {
					t.Errorf("%v does not say %q", e.Err, tt.says)
				}
			case <-time.After(patience):
				t.Fatal("it is not given up")
			}
		})
	}
	dead.Answer()
	eventually(t, "all are gone", func() bool { return h.stuck.wait(time.Millisecond) })
}
