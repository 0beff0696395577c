//go:build linux

package process

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/testtier"
)

// TestProcessesLeftBehindMayCleanUp has a command end by itself that leaves a child and a grandchild in another session: both get SIGTERM and the time to
// clean up, and the run names them.
// Promise: P7
func TestProcessesLeftBehindMayCleanUp(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		var log bytes.Buffer
		h.log = hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Warn, DisableTime: true})
		s := newScript(t, h, `sh -c 'trap "echo child got TERM; read _ <\$HOLD; echo child cleaned up; exit" TERM; echo child ready; while :; do sleep 1; done' &
			(setsid sh -c 'trap "echo far cleaned up; exit" TERM; echo far ready; while :; do sleep 1; done' &)
			read _ <$GO; exit 3`)
		s.spec.Job, s.spec.KillGrace, h.leftGrace = "tidy", time.Minute, time.Minute
		s.start()
		s.await("child ready")
		s.await("far ready")
		s.release("GO")
		s.await("far cleaned up")
		s.await("child got TERM")
		s.release("HOLD")
		exit := s.end()
		s.await("child cleaned up")
		if exit.Code != 3 || exit.Signal != "" || exit.Late {
			t.Errorf("ended as %+v", exit)
		}
		if !slices.Contains(exit.Left, "sh") {
			t.Errorf("left behind %q, without sh", exit.Left)
		}
		if n := strings.Count(log.String(), "[WARN]  run left processes behind; stopping them: job=tidy run_id="); n != 1 {
			t.Errorf("%d warnings:\n%s", n, log.String())
		}
	})
}

// TestProcessesLeftBehindAreKilled has them ignore SIGTERM: they get no longer than the run's grace.
// Promise: P7
func TestProcessesLeftBehindAreKilled(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		s := newScript(t, h, "trap '' TERM HUP;"+family+"read _ <$GO")
		s.spec.KillGrace = 50 * time.Millisecond
		s.start()
		pids := []int{s.awaitPID("child"), s.awaitPID("grandchild")}
		s.release("GO")
		exit := s.end()
		if exit.Code != 0 || exit.Err != nil {
			t.Errorf("ended as %+v", exit)
		}
		if len(exit.Left) != len(pids) { // each is cat, or the shell that is about to execute it
			t.Errorf("left behind %q, want %d programs", exit.Left, len(pids))
		}
		for _, pid := range pids {
			if living(t, pid) {
				t.Errorf("process %d of %v lives on", pid, pids)
			}
		}
	})
}

// TestKillCutsTheTimeOfProcessesLeftBehind kills a run, as a lost lease does, while the processes that its command left behind have their time.
// Promise: P3
func TestKillCutsTheTimeOfProcessesLeftBehind(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		s := newScript(t, h, `sh -c 'trap "echo got TERM" TERM; echo child $$; while :; do sleep 1; done' & read _ <$GO`)
		s.spec.KillGrace, h.leftGrace = time.Minute, time.Minute
		s.start()
		child := s.awaitPID("child")
		s.release("GO")
		s.await("got TERM")
		s.stop()
		s.kill()
		exit := s.end()
		if len(exit.Left) == 0 || exit.Code != 0 {
			t.Errorf("ended as %+v", exit)
		}
		if living(t, child) {
			t.Error("it lives on")
		}
	})
}

// TestNothingLeftBehindNamesNothing ends commands whose children have ended, in their group and out of it.
func TestNothingLeftBehindNamesNothing(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		var log bytes.Buffer
		h.log = hclog.New(&hclog.LoggerOptions{Output: &log})
		for range 5 {
			s := newScript(t, h, `true | cat; setsid true; (true & wait)`)
			s.spec.KillGrace = time.Minute
			s.start()
			if exit := s.end(); len(exit.Left) > 0 || exit.Code != 0 {
				t.Errorf("ended as %+v", exit)
			}
		}
		if log.Len() > 0 {
			t.Errorf("it logged:\n%s", log.String())
		}
	})
}

// TestWardenKillsWhatAFrozenReplicaLeftBehind freezes a replica while a process that its command left behind has its time: it is dead before the lease ends.
// Promise: P3
func TestWardenKillsWhatAFrozenReplicaLeftBehind(t *testing.T) {
	testtier.Slow(t)
	everyReplica(t, func(t *testing.T, mode string) {
		told := filepath.Join(t.TempDir(), "told")
		script := `sh -c 'trap "echo told >` + told + `" TERM; echo member child $$; while :; do sleep 1; done' & read _ <$HOLD`
		r := startTestReplica(t, mode, script, replicaLease+"=3s", replicaGrace+"=1m")
		pids := r.members(1)
		deadline := time.Duration(r.numbers("deadline", 1)[0])
		if err := os.WriteFile(r.hold, []byte("\n"), 0); err != nil {
			t.Fatal(err)
		}
		eventually(t, "SIGTERM for what was left behind", func() bool { _, err := os.Stat(told); return err == nil })
		r.signal(syscall.SIGSTOP)
		var alive time.Duration // the last look that found it began then
		eventually(t, "it is dead", func() bool {
			began := clock()
			if anyLiving(t, pids) {
				alive = began
				return false
			}
			return true
		})
		if alive >= deadline {
			t.Errorf("it lived %v after the deadline", alive-deadline)
		}
	})
}

// TestExitHasTheTimeOfTheWardensKill freezes a replica past the end of its lease: when it goes on, the exit has the time at which the warden killed the run, before that
// end, and not the time at which it went on.
// Promise: P3
func TestExitHasTheTimeOfTheWardensKill(t *testing.T) {
	everyReplica(t, func(t *testing.T, mode string) {
		r := startTestReplica(t, mode, "trap '' TERM;"+clan+"while :; do sleep 1; done", replicaLease+"=2s", replicaGrace+"=100ms")
		pids := r.members(4)
		deadline := r.numbers("deadline", 1)[0]
		r.signal(syscall.SIGSTOP)
		allDead(t, "the tree is dead", pids)
		eventually(t, "the lease has ended", func() bool { return clock() > time.Duration(deadline) })
		r.signal(syscall.SIGCONT)
		if killed := r.numbers("killed", 1)[0]; killed >= deadline || killed < deadline-int(2*time.Second) {
			t.Errorf("killed %v after the deadline", time.Duration(killed-deadline))
		}
		r.await("exit", 1)
	})
}

func TestListPrograms(t *testing.T) {
	for _, tt := range []struct {
		programs []string
		want     string
	}{
		{[]string{"git"}, "git"},
		{[]string{"sleep", "git", "sleep"}, "git, sleep (2)"},
		{[]string{"a\nb\x1b[31m\xff"}, "a?b?[31m?"},
		{[]string{"g", "f", "e", "d", "c", "b", "a", "a"}, "a (2), b, c, d, e, ..."},
	} {
		if got := ListPrograms(tt.programs); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.programs, got, tt.want)
		}
	}
}

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
	testtier.Slow(t)
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
