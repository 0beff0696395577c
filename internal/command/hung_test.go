//go:build linux

package command

import (
	"context"
	"errors"
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
		}
		dead.Answer()
		eventually(t, "the program can be started again", func() bool { return !h.stuck.has(startKey(&exec.Cmd{Path: program})) })
		if e := h.Run(t.Context(), t.Context(), Spec{Name: "r", Argv: []string{program}, Keep: 100}); e.Err != nil || string(e.Tail) != "run\n" {
			t.Errorf("afterwards: %+v", e)
		}
		for _, p := range proc.Children() {
			if !p.Executed() {
				t.Errorf("process %d was forked and has executed nothing", p.PID)
			}
		}
	})
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
