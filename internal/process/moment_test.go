//go:build linux

package process

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/exhaustion"
)

// TestProgramOpenForWriting: a program that is being replaced in place is started as soon as its writer has closed it.
func TestProgramOpenForWriting(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		program := filepath.Join(t.TempDir(), "program")
		put(t, program, "#!/bin/sh\necho run\n", 0o755)
		f, err := os.OpenFile(program, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		refused := make(chan struct{})
		once := sync.OnceFunc(func() { close(refused) })
		ended := make(chan Exit, 1)
		begun := func() error { once(); return nil }
		go func() {
			ended <- h.Run(t.Context(), t.Context(), Spec{Name: "r", Argv: []string{program}, Keep: 100, Begin: begun})
		}()
		<-refused
		if _, err := os.StartProcess(program, []string{program}, &os.ProcAttr{}); !errors.Is(err, syscall.ETXTBSY) {
			t.Fatalf("the program can be executed while it is written: %v", err)
		}
		f.Close()
		if e := <-ended; e.Err != nil || string(e.Tail) != "run\n" {
			t.Errorf("got %+v", e)
		}
	})
}

// TestBusyProgramIsGivenBack: a program that stays open is a start that has failed for the moment, and the reason says why.
func TestBusyProgramIsGivenBack(t *testing.T) {
	s := Spec{Argv: []string{"/bin/true"}}
	cmd, err := s.newCommand(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	why := newTestHost(t, false).whyNotStarted(cmd, &s, group{}, syscall.ETXTBSY)
	if !errors.Is(why, ErrNotStarted) || !strings.Contains(why.Error(), "text file busy: another process has it open for writing") {
		t.Error(why)
	}
}

// TestProgramIsReplaced: a program that is not there for a moment is started once it is.
func TestProgramIsReplaced(t *testing.T) {
	h := newTestHost(t, false)
	program := filepath.Join(t.TempDir(), "program")
	timer := func() error { return nil }
	put(t, program+".new", "#!/bin/sh\necho run\n", 0o755)
	ended := make(chan Exit, 1)
	go func() {
		ended <- h.Run(t.Context(), t.Context(), Spec{Name: "r", Argv: []string{program}, Keep: 100, Begin: timer})
	}()
	if err := os.Rename(program+".new", program); err != nil {
		t.Fatal(err)
	}
	if e := <-ended; e.Err != nil || string(e.Tail) != "run\n" {
		t.Errorf("got %+v", e)
	}
	e := h.Run(t.Context(), t.Context(), Spec{Name: "r", Argv: []string{program + "-not"}})
	if !errors.Is(e.Err, ErrNotFound) || !strings.Contains(e.Err.Error(), "looked for during 1") {
		t.Error(e.Err)
	}
}

// TestUserAtTheProcessLimit: a user's own limit is told from the machine's, and named.
func TestUserAtTheProcessLimit(t *testing.T) {
	asRoot(t)
	everyMode(t, func(t *testing.T, h *Host) {
		var before unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NPROC, &before); err != nil {
			t.Fatal(err)
		}
		first := newScript(t, h, `sleep 1000 & echo up; exec sleep 1000`)
		first.spec.User, first.spec.Group, first.spec.Dir = "4000011", "4000011", "/"
		first.start()
		first.await("up")
		defer func() {
			first.kill()
			first.end()
		}()
		defer func() { _ = unix.Setrlimit(unix.RLIMIT_NPROC, &before) }()
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: 1, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		e := h.Run(t.Context(), t.Context(), Spec{Name: "r", Argv: []string{"/bin/true"}, User: "4000011", Group: "4000011", Started: func() { t.Error("started") }})
		if !errors.Is(e.Err, ErrUserLimit) || errors.Is(e.Err, ErrNotStarted) || exhaustion.Is(e.Err) {
			t.Errorf("got %v", e.Err)
		}
		if e.Err != nil && !strings.Contains(e.Err.Error(), "the user 4000011 may have 1 processes and threads") {
			t.Errorf("%v does not name the user and the limit", e.Err)
		}
	})
}
