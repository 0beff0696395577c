//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/internal/warden"
)

// everyReplica runs a test on replicas of both modes.
func everyReplica(t *testing.T, test func(t *testing.T, mode string)) {
	for _, mode := range []string{"cgroup", "group"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			test(t, mode)
		})
	}
}

// clan is a family with more members that are hard to find: one in the group that has cleared its environment, and a grandchild
// in a session of its own.
const clan = `
(exec env -i HOLD=$HOLD sh -c 'echo member bare $$; exec cat $HOLD') &
(setsid sh -c 'echo member far $$; exec cat $HOLD' &)
sh -c 'echo member child $$; exec cat $HOLD' &
echo member leader $$
`

// members waits for the pids of a number of members.
func (r *testReplica) members(n int) []int {
	r.t.Helper()
	var all []int
	for _, line := range r.await("member", n) {
		var name string
		var pid int
		if _, err := fmt.Sscan(line, &name, &pid); err != nil {
			r.t.Fatal(err)
		}
		all = append(all, pid)
	}
	return all
}

// allDead waits until none of the processes lives.
func allDead(t *testing.T, what string, pids []int) {
	t.Helper()
	eventually(t, what, func() bool {
		for _, pid := range pids {
			if living(t, pid) {
				return false
			}
		}
		return true
	})
}

func anyLiving(t *testing.T, pids []int) bool {
	t.Helper()
	for _, pid := range pids {
		if living(t, pid) {
			return true
		}
	}
	return false
}

// gone waits until a killed replica has left nothing: no warden, no cgroup.
func (r *testReplica) gone() {
	r.t.Helper()
	for _, pid := range r.numbers("warden", 1) {
		eventually(r.t, "the end of the warden", func() bool { return !living(r.t, pid) })
	}
	for _, dir := range r.said("base") {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			r.t.Errorf("cgroup %s is left: %v", dir, err)
		}
	}
}

// TestKilledReplicaLeavesNothing kills a replica: the process tree of its run dies with it.
// Promise: P7
func TestKilledReplicaLeavesNothing(t *testing.T) {
	t.Parallel()
	everyReplica(t, func(t *testing.T, mode string) {
		for name, lease := range map[string]string{"lease": "1m", "no lease": ""} {
			t.Run(name, func(t *testing.T) {
				r := startTestReplica(t, mode, "trap '' TERM INT HUP;"+clan+"exec cat $HOLD", replicaLease+"="+lease)
				pids := r.members(4)
				killed := time.Now()
				r.signal(syscall.SIGKILL)
				allDead(t, "the tree is dead", pids)
				t.Logf("%v after the kill", time.Since(killed).Round(time.Millisecond))
				r.gone()
			})
		}
	})
}

// A replica that is killed when its command has just started leaves no process, although the warden has not learned the command's number.
// Promise: P7
func TestKilledReplicaThatHasJustStartedACommand(t *testing.T) {
	t.Parallel()
	everyReplica(t, func(t *testing.T, mode string) {
		script := `(setsid sh -c 'echo member far $$; exec cat $HOLD' &) ; echo member leader $$; exec cat $HOLD`
		r := startTestReplica(t, mode, script, replicaSilent+"=1")
		pids := r.members(2)
		r.signal(syscall.SIGKILL)
		allDead(t, "the tree is dead", pids)
		r.gone()
	})
}

// TestStoppedReplicaLosesItsRunBeforeTheDeadline has the warden end the run of a frozen replica before the lease ends.
// Promise: P3
func TestStoppedReplicaLosesItsRunBeforeTheDeadline(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	everyReplica(t, func(t *testing.T, mode string) {
		told := filepath.Join(t.TempDir(), "told")
		script := `trap 'cut -d" " -f1 /proc/uptime >>` + told + `' TERM;` + clan + `while :; do sleep 1; done`
		r := startTestReplica(t, mode, script, replicaLease+"=20s", replicaGrace+"=2s")
		pids := r.members(4)
		deadline := time.Duration(r.numbers("deadline", 1)[0])
		r.signal(syscall.SIGSTOP)
		var alive time.Duration // the last look that found one began then: a look of this process may itself be late
		eventually(t, "the tree is dead", func() bool {
			began := clock()
			if !anyLiving(t, pids) {
				return true
			}
			alive = began
			return false
		})
		if alive >= deadline {
			t.Errorf("alive %v after the deadline", alive-deadline)
		}
		text, err := os.ReadFile(told)
		if err != nil || len(strings.Fields(string(text))) != 1 {
			t.Fatalf("SIGTERM came not once, but %q, %v", text, err)
		}
		var seconds float64
		if _, err := fmt.Sscan(string(text), &seconds); err != nil {
			t.Fatal(err)
		}
		if at := time.Duration(seconds * float64(time.Second)); at < deadline-2100*time.Millisecond || at > deadline {
			t.Errorf("SIGTERM %v before the deadline, want 2s", deadline-at)
		}
		// The replica that wakes changes nothing about the run, and learns of its end.
		r.signal(syscall.SIGCONT)
		r.await("exit", 1)
		if anyLiving(t, pids) {
			t.Error("the tree lives")
		}
		r.await("closing", 1)
		<-r.ended
		r.gone()
	})
}

func TestExtensionKeepsARunAlive(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	everyReplica(t, func(t *testing.T, mode string) {
		r := startTestReplica(t, mode, "echo member leader $$; exec cat $HOLD", replicaLease+"=9s", replicaGrace+"=2s", replicaRenew+"=100ms")
		pids := r.members(1)
		first := time.Duration(r.numbers("deadline", 1)[0])
		eventually(t, "the first lease has passed", func() bool { return clock() > first+2*time.Second })
		if !anyLiving(t, pids) {
			t.Error("it was killed although the lease was extended")
		}
		r.signal(syscall.SIGSTOP)
		allDead(t, "it is dead without extensions", pids)
		r.signal(syscall.SIGCONT) // with late extensions, at once
		if e := r.await("exit", 1)[0]; e != "137 <nil>" && e != "143 <nil>" {
			t.Errorf("exit %s", e)
		}
	})
}

// TestWardenIsReplaced kills and freezes the warden: its successor still ends the run when the replica is killed.
// Promise: P3, P7
func TestWardenIsReplaced(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	everyReplica(t, func(t *testing.T, mode string) {
		for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
			t.Run(name, func(t *testing.T) {
				r := startTestReplica(t, mode, clan+"exec cat $HOLD", replicaLease+"=1m")
				pids := r.members(4)
				first := r.newestWarden(1)
				if err := unix.Kill(first, signal); err != nil {
					t.Fatal(err)
				}
				r.newestWarden(2)
				if living(t, first) {
					t.Error("the first warden lives on")
				}
				for _, pid := range pids {
					if !living(t, pid) {
						t.Errorf("%d died with the warden", pid)
					}
				}
				r.signal(syscall.SIGKILL)
				allDead(t, "the tree is dead", pids)
				r.gone()
			})
		}
	})
}

func TestWardenIgnoresWhatIsMeantForTheReplica(t *testing.T) {
	t.Parallel()
	r := startTestReplica(t, "group", clan+"exec cat $HOLD")
	pids := r.members(4)
	pid := r.newestWarden(1)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if err := unix.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
	}
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("its session is %d, %v", sid, err)
	}
	r.signal(syscall.SIGKILL)
	allDead(t, "the tree is dead", pids)
	if n := len(r.said("warden")); n != 1 {
		t.Errorf("there were %d wardens", n)
	}
}

func TestWardenKnowsNoSecrets(t *testing.T) {
	t.Parallel()
	r := startTestReplica(t, "group", "echo member leader $$; exec cat $HOLD")
	r.members(1)
	dir := fmt.Sprintf("/proc/%d/", r.newestWarden(1))
	env, err := os.ReadFile(dir + "environ")
	if err != nil || strings.Contains(string(env), "hunter2") || strings.Contains(string(env), "PATH=") {
		t.Errorf("environment %q, %v", env, err)
	}
	if at, err := os.Readlink(dir + "cwd"); err != nil || at != "/" {
		t.Errorf("it is in %s, %v", at, err)
	}
}

func TestNormalEndLeavesNoWarden(t *testing.T) {
	t.Parallel()
	everyReplica(t, func(t *testing.T, mode string) {
		r := startTestReplica(t, mode, clan+"exit 3", replicaLease+"=1m")
		if e := r.await("exit", 1)[0]; e != "3 <nil>" {
			t.Errorf("exit %s", e)
		}
		r.await("closing", 1)
		<-r.ended
		if !r.cmd.ProcessState.Success() {
			t.Errorf("the replica ended with %s", r.cmd.ProcessState)
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", r.newestWarden(1))); err == nil {
			t.Error("the warden was not waited for")
		}
		r.gone()
	})
}

// TestManyRunsDieTogether kills a replica with 200 runs: all their process trees die with it.
// Promise: P7
func TestManyRunsDieTogether(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	everyReplica(t, func(t *testing.T, mode string) {
		const runs = 200
		r := startTestReplica(t, mode, "(setsid cat $HOLD &) ; echo member leader $$; exec cat $HOLD", replicaRuns+"="+fmt.Sprint(runs), replicaLease+"=1m", replicaRenew+"=1s")
		pids := r.members(runs)
		killed := time.Now()
		r.signal(syscall.SIGKILL)
		allDead(t, "all trees are dead", pids)
		t.Logf("%d runs, %v after the kill", runs, time.Since(killed).Round(time.Millisecond))
		r.gone()
		eventually(t, "nobody holds the pipe", func() bool { return !inUse(r.hold) })
	})
}

// inUse returns whether a pipe has readers.
func inUse(path string) bool {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return !errors.Is(err, unix.ENXIO)
}

func TestNumberIsGivenUpBeforeTheLeaderIsReaped(t *testing.T) {
	h := newTestHost(t, false)
	cmd := exec.Command("/bin/true")
	s := &spy{}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	s.placeLeader(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := &leaderSpy{leader: cmd.Process.Pid}
	if exit := h.superviseRun(t.Context(), t.Context(), cmd.Process, &Spec{}, s, w, &attendance{}); exit.Err != nil {
		t.Error(exit.Err)
	}
	if w.calls != 1 || !w.there {
		t.Errorf("given up %d times, with the leader still there: %v", w.calls, w.there)
	}
}

// leaderSpy is a ward that notes whether the leader still has its number when that is given up.
type leaderSpy struct {
	unwatched
	leader, calls int
	there         bool
}

func (w *leaderSpy) Reap() (late bool, ago time.Duration) {
	w.calls++
	w.there = unix.Kill(w.leader, 0) == nil
	return false, 0
}

// fakeWarden does something before it knows of a run.
type fakeWarden func(Watched) error

func (fakeWarden) Inherit(string) {}

func (f fakeWarden) Watch(r Watched) Ward { return fakeWard{err: f(r)} }

type fakeWard struct {
	unwatched
	err error
}

func (w fakeWard) Known(context.Context) error { return w.err }

func TestNothingStartsWithoutTheWardensWord(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		why := errors.New("there is none")
		h.warden = fakeWarden(func(r Watched) error {
			if (r.Cgroup == "") == (r.ID == "") {
				t.Errorf("the run can't be told from others, or in two ways: %+v", r)
			}
			return why
		})
		s := newScript(t, h, "echo started")
		s.start()
		if e := s.end(); !errors.Is(e.Err, why) || e.Code != -1 || len(s.lines) > 0 {
			t.Errorf("ended as %+v, said %q", e, s.lines)
		}
		if base := h.cells.base; base != nil {
			if left, _ := filepath.Glob(base.dir + "/*-*"); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		}
	})
}

// A lease that is extended while the warden's word is awaited lasts, however long that takes.
// Promise: P3
func TestExtensionCountsWhileTheWardenIsAwaited(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	gate := filepath.Join(t.TempDir(), "gate") // while it is there no warden gets ready
	w, err := warden.Start(warden.Config{Command: []string{"/bin/sh", "-c", `while [ -e "$0" ]; do sleep 0.01; done; exec "$1" warden`, gate, self}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	put(t, gate, "", 0o600)
	if err := unix.Kill(w.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the warden is missed", func() bool { return !w.Ready() })
	h := newTestHost(t, false)
	h.warden = watchman{Warden: w}
	s := newScript(t, h, "echo started; exec sleep 1")
	lease := &testLease{length: 5 * time.Second} // a warden that takes ten to start is given up
	lease.extend()
	first := lease.Deadline()
	s.spec.Lease = lease
	s.start()
	eventually(t, "the first deadline has passed", func() bool { lease.extend(); return clock() > first })
	if err := os.Remove(gate); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the run", func() bool { lease.extend(); return len(s.ended) > 0 })
	if e := s.end(); e.Status() != 0 || len(s.lines) != 1 {
		t.Errorf("ended as %+v, said %q", e, s.lines)
	}
}

// The replica stood still between the warden's word and the start, until its lease had ended: the warden has removed the cgroup.
// Promise: P6
func TestNothingIsBornInACgroupOfALateRun(t *testing.T) {
	h := newTestHost(t, true)
	h.warden = fakeWarden(func(r Watched) error { return proc.RemoveCgroup(r.Cgroup) })
	s := newScript(t, h, "echo started")
	s.start()
	e := s.end()
	if e.Err == nil || len(s.lines) > 0 {
		t.Errorf("ended as %+v, said %q", e, s.lines)
	}
	if errors.Is(e.Err, ErrNotExecutable) || !strings.Contains(e.Err.Error(), "cgroup") {
		t.Errorf("the command, which is fine, is blamed: %v", e.Err)
	}
}

// lateWarden lets a run start only when it should be dead already, as a replica does that stands still in between.
type lateWarden struct{ *warden.Warden }

func (w lateWarden) Watch(r Watched) Ward { return lateWard{w.Warden.Watch(warden.Run(r)), r} }

type lateWard struct {
	Ward
	run Watched
}

func (w lateWard) Known(ctx context.Context) error {
	err := w.Ward.Known(ctx)
	pollUntil(ctx, func() bool { return clock() > w.run.Deadline && !isThere(w.run.Cgroup) })
	return err
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// A run that the warden has ended is reported as ended by the warden, whether it was about to start or under way.
// Promise: P6
func TestLateRunIsReported(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w, err := warden.Start(warden.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	for _, tt := range []struct {
		name, script string
		lease        time.Duration
		warden       Warden
		late         bool
	}{
		{"before the start", "echo started; exec cat $HOLD", 300 * time.Millisecond, lateWarden{w}, true},
		{"killed", "trap '' TERM; while :; do sleep 1; done", 300 * time.Millisecond, watchman{Warden: w}, true},
		{"obeyed", "trap 'exit 0' TERM; while :; do sleep 0.01; done", 6 * time.Second, watchman{Warden: w}, true},
		{"killed by another", "kill -KILL $$", time.Hour, watchman{Warden: w}, false},
		{"ended", "exit 3", time.Hour, watchman{Warden: w}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			everyMode(t, func(t *testing.T, h *Host) {
				h.warden = tt.warden
				s := newScript(t, h, tt.script)
				lease := &testLease{length: tt.lease}
				lease.extend()
				s.spec.Lease, s.spec.KillGrace = lease, tt.lease
				s.start()
				if e := s.end(); e.Late != tt.late || errors.Is(e.Err, ErrNotExecutable) {
					t.Errorf("ended as %+v", e)
				}
			})
		})
	}
}
