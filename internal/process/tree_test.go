//go:build linux

package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/warden"
)

func TestExitCodesAndSignals(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		tests := map[string]struct {
			script string
			want   Exit
			status int
		}{
			"zero":     {"exit 0", Exit{Code: 0}, 0},
			"own code": {"exit 42", Exit{Code: 42}, 42},
			"greatest": {"exit 255", Exit{Code: 255}, 255},
			"TERM":     {"kill -TERM $$", Exit{Code: -1, Signal: "SIGTERM"}, 143},
			"KILL":     {"kill -KILL $$", Exit{Code: -1, Signal: "SIGKILL"}, 137},
			"unnamed":  {"kill -40 $$", Exit{Code: -1, Signal: "SIG40"}, 168},
		}
		for name, tt := range tests {
			t.Run(name, func(t *testing.T) {
				got := sh(t, h, tt.script)
				if got.Code != tt.want.Code || got.Signal != tt.want.Signal || got.Err != nil {
					t.Errorf("got %+v, want %+v", got, tt.want)
				}
				if got.Status() != tt.status {
					t.Errorf("status %d, want %d", got.Status(), tt.status)
				}
			})
		}
	})
}

// family is a script with a leader, a child in its group, and a grandchild in a session of its own whose
// parent is gone. Each says its pid and waits.
const family = `
(echo child $(exec sh -c 'echo $PPID'); exec cat $HOLD) &
(setsid sh -c 'echo grandchild $$; exec cat $HOLD' &)
echo leader $$
`

// TestKillLeavesNothingOfTheTree kills a run with its child and grandchild.
// Promise: P3, P7
func TestKillLeavesNothingOfTheTree(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		s := newScript(t, h, family+"read _ <$HOLD")
		s.start()
		pids := []int{s.awaitPID("leader"), s.awaitPID("child"), s.awaitPID("grandchild")}
		s.kill()
		if e := s.end(); e.Signal != "SIGKILL" || e.Code != -1 {
			t.Errorf("ended as %+v", e)
		}
		for _, pid := range pids {
			if living(t, pid) {
				t.Errorf("process %d of %v lives on", pid, pids)
			}
		}
	})
}

// TestNormalEndKillsWhatIsLeftBehind kills the processes that a command leaves behind at its normal end.
// Promise: P7
func TestNormalEndKillsWhatIsLeftBehind(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		s := newScript(t, h, "trap '' TERM HUP;"+family+"read _ <$GO; exit 3")
		s.start()
		pids := []int{s.awaitPID("child"), s.awaitPID("grandchild")}
		s.release("GO")
		if e := s.end(); e.Code != 3 || e.Signal != "" {
			t.Errorf("ended as %+v", e)
		}
		for _, pid := range pids {
			if living(t, pid) {
				t.Errorf("process %d of %v lives on", pid, pids)
			}
		}
	})
}

func TestStopIsSIGTERMToEveryProcessOnce(t *testing.T) {
	const members = 40
	everyMode(t, func(t *testing.T, h *Host) {
		// Each member prints a line for each SIGTERM. The last of many is signalled when the first has had time to handle its own, so that the kernel
		// does not merge a superfluous signal with it.
		const member = `trap "echo $0 stopped" TERM; echo $0 ready; while :; do sleep 1; done`
		s := newScript(t, h, `for i in $(seq `+strconv.Itoa(members)+`); do sh -c "$M" member$i & done; exec sh -c "$M" leader`)
		s.spec.Env = append(s.spec.Env, "M="+member)
		s.start()
		names := []string{"leader"}
		for i := range members {
			names = append(names, fmt.Sprintf("member%d", i+1))
		}
		for _, name := range names {
			s.await(name + " ready")
		}
		s.stop()
		for _, name := range names {
			s.await(name + " stopped")
		}
		s.kill()
		s.end()
		for _, name := range names {
			if n := slices.Index(s.lines, "stdout "+name+" stopped"); slices.Contains(s.lines[n+1:], s.lines[n]) {
				t.Errorf("%s had more than one SIGTERM", name)
			}
		}
	})
}

// A shell that sees its command end before it is told itself would go on with the next one.
// Promise: P9
func TestStopSignalsTheLeaderFirst(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		s := newScript(t, h, `trap 'echo told; exit' TERM
			for i in $(seq 100); do sleep 1000 & : ${first:=$!}; done; echo ready; wait $first; echo went on`)
		s.start()
		s.await("ready")
		s.stop()
		s.await("told")
		s.kill()
		s.end()
		if slices.Contains(s.lines, "stdout went on") {
			t.Errorf("it said %q", s.lines)
		}
	})
}

func TestStopReachesOtherSessionsInACgroup(t *testing.T) {
	h := newTestHost(t, true)
	s := newScript(t, h, `(setsid sh -c 'trap "echo far stopped; exit" TERM; echo far ready; while :; do sleep 1; done' &); read _ <$HOLD`)
	s.start()
	s.await("far ready")
	s.stop()
	s.await("far stopped")
	if e := s.end(); e.Signal != "SIGTERM" {
		t.Errorf("ended as %+v", e)
	}
}

func TestStopGivesTheTreeItsGraceAlsoWhenTheLeaderIsDead(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		s := newScript(t, h, `sh -c 'trap "read _ <\$GO; echo cleaned up; exit" TERM; echo ready; while :; do sleep 1; done' & echo leader $$; wait`)
		s.start()
		s.await("ready")
		leader := s.awaitPID("leader")
		s.stop()
		eventually(t, "the leader dies of SIGTERM", func() bool { return !living(t, leader) })
		s.release("GO")
		e := s.end()
		s.await("cleaned up")
		if e.Signal != "SIGTERM" {
			t.Errorf("ended as %+v", e)
		}
	})
}

func TestTermThenKill(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		s := newScript(t, h, `trap 'echo got TERM' TERM
			sh -c 'trap "" TERM; echo child $$; read _ <$HOLD' &
			echo leader $$; while :; do sleep 1; done`)
		s.start()
		leader, child := s.awaitPID("leader"), s.awaitPID("child")
		s.stop()
		s.await("got TERM")
		for _, pid := range []int{leader, child} {
			if !living(t, pid) {
				t.Errorf("%d is dead before the kill", pid)
			}
		}
		s.kill()
		if e := s.end(); e.Signal != "SIGKILL" {
			t.Errorf("ended as %+v", e)
		}
		if living(t, leader) || living(t, child) {
			t.Error("the tree lives on")
		}
	})
}

func TestNothingStartsAfterStopOrKill(t *testing.T) {
	h := newTestHost(t, false)
	why := errors.New("the lease is lost")
	gone, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	file := filepath.Join(t.TempDir(), "ran")
	s := Spec{Argv: []string{"/bin/sh", "-c", "echo >" + file}}
	for _, e := range []Exit{h.Run(gone, context.Background(), s), h.Run(context.Background(), gone, s)} {
		if !errors.Is(e.Err, why) || e.Code != -1 {
			t.Errorf("got %+v", e)
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("it was started")
	}
}

func TestRunFallsBackToAGroupAndSaysItOnce(t *testing.T) {
	h := newTestHost(t, true)
	var log strings.Builder
	h.cells.log = hclog.New(&hclog.LoggerOptions{Output: &log})
	if err := proc.RemoveCgroup(h.cells.base.dir); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if e := sh(t, h, "exit 5"); e.Code != 5 {
			t.Errorf("ended as %+v", e)
		}
	}
	if n := strings.Count(log.String(), "[WARN]"); n != 1 {
		t.Errorf("%d warnings, want 1:\n%s", n, log.String())
	}
}

func TestPipeHeldOutsideTheTreeDoesNotHangRun(t *testing.T) {
	t.Parallel()
	everyMode(t, func(t *testing.T, h *Host) {
		// The test itself is the process outside the tree: it opens the write end of the command's stdout.
		s := newScript(t, h, `echo leader $$; echo 'no newline'; read _ <$GO`)
		s.start()
		leader := s.await("leader")
		held, err := os.OpenFile("/proc/"+leader+"/fd/1", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		begun := time.Now()
		s.release("GO")
		if e := s.end(); e.Code != 0 {
			t.Errorf("ended as %+v", e)
		}
		if took := time.Since(begun); took < drainTime {
			t.Errorf("gave up after %s, before its time", took)
		}
	})
}

func TestIsolationIsOneLine(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		line := h.Isolation()
		if strings.Contains(line, "\n") || !strings.HasPrefix(line, "cgroup v2 at /") && !strings.HasPrefix(line, "process groups (") {
			t.Errorf("isolation %q", line)
		}
	})
	h, err := NewHost(HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(h.Isolation())
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// spy is a process group that notes whether its leader was there to be signalled.
type spy struct {
	group
	signals  int
	unreaped int
	settled  bool // the leader was reaped before settle
	waits    int  // calls that only a run with processes left behind needs
}

func (s *spy) terminate(leader int) {
	s.waits++
	s.group.terminate(leader)
}

func (s *spy) membersAlive(leader int) bool {
	s.waits++
	return s.group.membersAlive(leader)
}

func (s *spy) kill(leader int) {
	s.signals++
	if unix.Kill(leader, 0) == nil {
		s.unreaped++
	}
	s.group.kill(leader)
}

func (s *spy) awaitDeath(leader int) {
	s.settled = errors.Is(unix.Kill(leader, 0), unix.ESRCH)
	s.group.awaitDeath(leader)
}

// The leader stays unreaped until its group was killed, so that the kill can't hit a stranger with the same number.
func TestLeaderIsReapedAfterItsGroupWasKilled(t *testing.T) {
	h := newTestHost(t, false)
	cmd := exec.Command("/bin/true")
	s := &spy{}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	s.placeLeader(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if exit := h.superviseRun(t.Context(), t.Context(), cmd.Process, &Spec{}, s, unwatched{}, &attendance{}); exit.Err != nil {
		t.Error(exit.Err)
	}
	if s.signals != 1 || s.unreaped != 1 || !s.settled {
		t.Errorf("got %+v", s)
	}
	if s.waits != 0 {
		t.Errorf("a run that left nothing behind was delayed by %d looks and signals", s.waits)
	}
}

// lingering is a process group with a process that ends after a number of looks.
type lingering struct {
	group
	looks, most int
}

func (l *lingering) membersAlive(int) bool {
	l.looks++
	return l.looks <= l.most
}

func (l *lingering) leftPrograms(int) []string {
	if l.looks <= l.most {
		return []string{"cat"}
	}
	return nil
}

// Processes that end by a signal that was passed on, a moment after the command, were not left behind by it.
func TestSignaledProcessesAreNotLeftBehind(t *testing.T) {
	for _, tc := range []struct {
		passed []os.Signal
		looks  int
		left   bool
	}{{nil, 3, true}, {[]os.Signal{syscall.SIGINT}, 3, false}, {[]os.Signal{syscall.SIGINT}, 1 << 30, true}} {
		h := newTestHost(t, false)
		cmd := exec.Command("/bin/true")
		l := &lingering{most: tc.looks}
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		l.placeLeader(cmd.SysProcAttr)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		exit := h.superviseRun(t.Context(), t.Context(), cmd.Process, &Spec{KillGrace: time.Millisecond}, l, unwatched{}, &attendance{leader: cmd.Process.Pid, passed: tc.passed})
		if left := len(exit.Left) > 0; left != tc.left {
			t.Errorf("signals %v were passed on, a process ended after %d looks; left behind: %q", tc.passed, tc.looks, exit.Left)
		}
	}
}

// BenchmarkRun runs /bin/true in each mode, without and with a warden, beside a bare exec.Cmd whose output is captured.
func BenchmarkRun(b *testing.B) {
	b.Run("exec.Cmd", func(b *testing.B) {
		for b.Loop() {
			var out bytes.Buffer
			cmd := exec.Command("/bin/true")
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	umask := uint32(0o27)
	spec := Spec{Name: "bench", Argv: []string{"/bin/true"}, Env: []string{"PATH=/bin", proc.RunID + "=bench"}, Keep: 16 << 10}
	masked := spec
	masked.Umask = &umask
	for _, mode := range []struct {
		name    string
		cgroups bool
		warden  bool
		spec    Spec
	}{{"cgroup", true, false, spec}, {"group", false, false, spec}, {"group, umask", false, false, masked},
		{"cgroup, warden", true, true, spec}, {"group, warden", false, true, spec}} {
		b.Run(mode.name, func(b *testing.B) {
			h := newTestHost(b, mode.cgroups)
			if mode.warden {
				w, err := warden.Start(warden.Config{})
				if err != nil {
					b.Fatal(err)
				}
				defer w.Close()
				h.warden = watchman{w, false}
			}
			for b.Loop() {
				if e := h.Run(b.Context(), b.Context(), mode.spec); e.Code != 0 {
					b.Fatalf("%+v", e)
				}
			}
		})
	}
}
