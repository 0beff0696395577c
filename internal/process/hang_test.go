//go:build linux

package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/hungfs"
	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/safefile"
)

// withoutFiles calls f while this process can open at most so many files more.
func withoutFiles(t *testing.T, more int, f func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	var held []int
	defer func() {
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &before)
		for _, fd := range held {
			unix.Close(fd)
		}
	}()
	probe, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(probe)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(probe + 32), Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	for {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		held = append(held, fd)
	}
	for range more {
		unix.Close(held[len(held)-1])
		held = held[:len(held)-1]
	}
	f()
}

// TestStartWithoutFiles: whatever step of a start lacks a file descriptor, the command is not started, and that is not its fault.
func TestStartWithoutFiles(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		unstarted := 0
		for more := range 20 {
			var begun atomic.Bool
			var e Exit
			var probed error
			withoutFiles(t, more, func() {
				e = h.Run(t.Context(), t.Context(), Spec{Name: "r", Argv: []string{"/bin/true"}, Started: func() { begun.Store(true) }})
				probed = h.Probe()
			})
			switch {
			case e.Err == nil:
				if !begun.Load() {
					t.Errorf("%d more files: it ran, and was not said to be started", more)
				}
				continue
			case !errors.Is(e.Err, ErrNotStarted) || !errors.Is(e.Err, syscall.EMFILE) || begun.Load():
				t.Errorf("%d more files: %v (started %v)", more, e.Err, begun.Load())
			}
			if more < 4 && probed == nil {
				t.Errorf("%d more files: a probe succeeds", more)
			}
			unstarted++
		}
		if unstarted == 0 || unstarted > 15 {
			t.Errorf("%d of 20 were not started", unstarted)
		}
		if err := h.Probe(); err != nil {
			t.Errorf("a probe fails on a machine that is well: %v", err)
		}
		if e := h.Run(t.Context(), t.Context(), Spec{Argv: []string{"/no/such"}}); errors.Is(e.Err, ErrNotStarted) {
			t.Errorf("a command that is not there is not the machine's fault: %v", e.Err)
		}
	})
}

// A start that hangs in the kernel is abandoned, its forked process is dead, and the command has not begun. A lease on the file (fcntl(2)) makes
// execve hang.
func TestExecutionThatHangs(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		signal.Ignore(unix.SIGIO) // the kernel sends it to the lease's holder when execve waits
		defer signal.Reset(unix.SIGIO)
		dir := t.TempDir()
		program, mark := filepath.Join(dir, "program"), filepath.Join(dir, "mark")
		put(t, program, "#!/bin/sh\n: >"+mark+"\n", 0o755)
		f, err := os.OpenFile(program, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
			t.Skipf("no leases on the files here: %v", err)
		}
		kill, killNow := context.WithCancel(t.Context())
		defer killNow()
		var begun atomic.Bool
		e := h.Run(t.Context(), kill, Spec{Name: "r", Argv: []string{program}, Started: func() { begun.Store(true) },
			Begin: func() error { killNow(); return nil }})
		if !errors.Is(e.Err, ErrNotStarted) || begun.Load() {
			t.Fatalf("got %+v, started %v", e, begun.Load())
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if _, err := os.Stat(mark); err == nil {
			t.Error("the program has run")
		}
		if e := h.Run(t.Context(), t.Context(), Spec{Name: "r", Argv: []string{program}}); e.Err != nil || e.Code != 0 {
			t.Errorf("the next start: %+v", e)
		}
		if _, err := os.Stat(mark); err != nil {
			t.Error(err)
		}
	})
}

// TestRunThatMustNotBegin: the last word before the start is the caller's.
func TestRunThatMustNotBegin(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		no := errors.New("given back")
		e := h.Run(t.Context(), t.Context(), Spec{Name: "r", Argv: []string{"/bin/true"}, Begin: func() error { return no },
			Started: func() { t.Error("started") }})
		if !errors.Is(e.Err, no) || !errors.Is(e.Err, ErrNotStarted) {
			t.Errorf("got %+v", e)
		}
	})
}

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
			for _, path := range []string{dead.Dir, dead.Dir + "/program", dead.Dir + "/true"} {
				eventually(t, "the reads that were given up have returned", func() bool {
					_, err := safefile.Ask(t.Context(), path, func() (bool, error) { return true, nil })
					return !errors.Is(err, safefile.ErrHangs)
				})
			}
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
