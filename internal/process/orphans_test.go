//go:build linux

package process

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
)

// zombies lists our dead children.
func zombies(t *testing.T) []proc.Process {
	t.Helper()
	all, err := proc.All()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(p proc.Process) bool { return p.Parent != os.Getpid() || !p.Dead() })
}

func TestNoZombies(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		var runs []*script // eight at a time
		for range 40 {
			if len(runs) == 8 {
				runs[0].end()
				runs = runs[1:]
			}
			// Grandchildren that die before and after their parent, in the group and out of it.
			s := newScript(t, h, `(exit 1) & (sh -c 'exit 2' &) ; (setsid sh -c 'exit 3' &); (setsid cat $HOLD &); cat $HOLD & exit 4`)
			s.start()
			runs = append(runs, s)
		}
		for _, s := range runs {
			s.end()
		}
		eventually(t, "every zombie is reaped", func() bool { return len(zombies(t)) == 0 })
	})
}

func TestReaperStealsNoExitStatus(t *testing.T) {
	h := newTestHost(t, false)
	var foreign []*exec.Cmd
	for range 5 {
		cmd := exec.Command("/bin/sh", "-c", "exit 7")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		foreign = append(foreign, cmd)
		// The process is dead and not reaped yet.
		if err := awaitExit(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	orphan := makeOrphan(t)
	h.cells.orphans.reapDead()
	if slices.ContainsFunc(zombies(t), func(p proc.Process) bool { return p.PID == orphan }) {
		t.Error("the orphan, behind others in the kernel's list, was not reaped")
	}
	for _, cmd := range foreign {
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
			t.Errorf("exit status %v, want 7", err)
		}
	}
}

// makeOrphan makes a dead child of ours without a waiter.
func makeOrphan(t *testing.T) int {
	t.Helper()
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", "exit 1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := awaitExit(pid); err != nil && !errors.Is(err, unix.ECHILD) { // ECHILD: reaped by now
		t.Fatal(err)
	}
	return pid
}

func TestReaperIsWokenByDeaths(t *testing.T) {
	newTestHost(t, false)
	orphan := makeOrphan(t)
	eventually(t, "the orphan is reaped", func() bool {
		return !slices.ContainsFunc(zombies(t), func(p proc.Process) bool { return p.PID == orphan })
	})
}

// Only this run's orphans are swept away, and only where they say whose they are.
func TestSweepTakesNobodyElses(t *testing.T) {
	h := newTestHost(t, false)
	other := newScript(t, h, "echo pid $$; exec cat $HOLD")
	other.start()
	otherPID := other.awaitPID("pid")

	s := newScript(t, h, `(setsid sh -c 'echo own $$; exec cat $HOLD' &)
		(env CRONCLAVE_RUN_ID=x setsid sh -c 'echo renamed $$; exec cat $HOLD >/dev/null 2>&1' &)
		read _ <$GO`)
	s.start()
	own, renamed := s.awaitPID("own"), s.awaitPID("renamed")
	s.release("GO")
	s.end()
	if living(t, own) {
		t.Error("the run's own orphan lives on")
	}
	if !living(t, renamed) || !living(t, otherPID) {
		t.Error("somebody else's process was killed")
	}
	_ = unix.Kill(renamed, unix.SIGKILL)
	other.kill()
	other.end()
}

func TestFilesAreNotLeaked(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		sh(t, h, "echo warm up")
		before := openFiles(t)
		for i := range 50 {
			if i%10 == 0 {
				h.Run(t.Context(), t.Context(), Spec{Argv: []string{"/no/such"}})
			} else {
				h.Run(t.Context(), t.Context(), Spec{Name: "leak", Argv: []string{"/bin/sh", "-c", "echo x"}})
			}
		}
		// The reaper may hold files in /proc open for a moment; a leak stays.
		eventually(t, "as many open files as before", func() bool { return openFiles(t) <= before })
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}
