//go:build linux

package process

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
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
