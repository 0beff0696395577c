//go:build linux

package process

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
)

// withLimits runs a test with a host that keeps such limits. Where this machine can't the test is another one: nothing may be run at all. With
// CRONCLAVE_TEST_LIMITS=1, which make vm sets, that is a failure.
func withLimits(t *testing.T, l Limits, test func(t *testing.T, h *Host)) {
	t.Helper()
	h, err := NewHost(HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	able := h.Check(Spec{Limits: l})
	if able == nil {
		test(t, h)
		return
	}
	e := h.Run(t.Context(), t.Context(), Spec{Name: "limited", Argv: []string{"/bin/echo", "begun"}, Limits: l, Keep: 100})
	if !errors.Is(able, ErrLimits) || !errors.Is(e.Err, ErrLimits) || len(e.Tail) > 0 {
		t.Errorf("can't keep limits: %v; and the run: %+v", able, e)
	}
	if os.Getenv("CRONCLAVE_TEST_LIMITS") == "1" {
		t.Error("this machine is said to keep limits: ", able)
	}
	t.Log("only that nothing is run without its limits was tested:", able)
}

// hungry needs 256 MiB. Its sibling in the tree needs nothing.
const hungry = `sh -c 'echo beside $$; exec cat $HOLD' & awk 'BEGIN { s = "x"; while (length(s) < 268435456) s = s s; print "survived" }'; echo survived`

// numerous starts a hundred processes beside itself.
const numerous = `n=0; while [ $n -lt 100 ]; do sleep 1000 & n=$((n+1)); echo $n; done; echo survived`

// bomb doubles for ever.
const bomb = `b() { b & b & }; b; exec cat $HOLD`

// TestLimitsBite, one without the other, too: a machine hands their controllers on by different rules.
// Promise: P9
func TestLimitsBite(t *testing.T) {
	for name, l := range map[string]Limits{"memory": {Memory: 64 << 20}, "pids": {Pids: 32}, "both": {Memory: 64 << 20, Pids: 32}} {
		t.Run(name, func(t *testing.T) {
			withLimits(t, l, func(t *testing.T, h *Host) {
				if l.Memory > 0 {
					testMemory(t, h, l)
				}
				if l.Pids > 0 {
					testPids(t, h, l)
				}
				if left, _ := filepath.Glob(h.cells.base.dir + "/*-*"); len(left) > 0 {
					t.Errorf("cgroups are left: %v", left)
				}
			})
		})
	}
}

// testMemory demands that a run that takes too much memory is killed as a whole, and no other run.
func testMemory(t *testing.T, h *Host, l Limits) {
	sibling, greedy := newScript(t, h, `echo up; read _ <$GO`), newScript(t, h, hungry)
	sibling.spec.Limits, greedy.spec.Limits = l, l
	sibling.start()
	sibling.await("up")
	greedy.start()
	beside := greedy.awaitPID("beside")
	if e := greedy.end(); !e.OutOfMemory || e.Signal != "SIGKILL" || e.Err != nil || strings.Contains(string(e.Tail), "survived") || living(t, beside) {
		t.Errorf("it took 256 MiB: %+v, %q; another process of it lives: %v", e, e.Tail, living(t, beside))
	}
	sibling.release("GO")
	if e := sibling.end(); e.Status() != 0 || e.OutOfMemory {
		t.Errorf("the run beside it: %+v", e)
	}
}

// testPids demands that a run has as many processes as it may, that another has its own number, and that a fork bomb is killed whole.
func testPids(t *testing.T, h *Host, l Limits) {
	bombing := newScript(t, h, bomb)
	bombing.spec.Limits = l
	bombing.start()
	eventually(t, "a fork that fails", func() bool {
		refused, _ := filepath.Glob(h.cells.base.dir + "/*-*/pids.events")
		return len(refused) == 1 && content(t, refused[0]) != "max 0\n"
	})
	counting := newScript(t, h, numerous)
	counting.spec.Limits = l
	counting.start()
	e := counting.end()
	if most := strconv.Itoa(l.Pids - 1); e.Status() == 0 || !strings.Contains(string(e.Tail), "\n"+most+"\n") || strings.Contains(string(e.Tail), "\n"+strconv.Itoa(l.Pids)+"\n") {
		t.Errorf("with %d processes at most: %+v, %q", l.Pids, e, e.Tail)
	}
	bombing.kill()
	if e := bombing.end(); e.Signal != "SIGKILL" || e.OutOfMemory {
		t.Errorf("the bomb: %+v", e)
	}
}

// TestKilledReplicaWithLimitsLeavesNothing: neither the run, nor a cgroup, nor a place where no other replica can start.
// Promise: P7
func TestKilledReplicaWithLimitsLeavesNothing(t *testing.T) {
	l := Limits{Memory: 64 << 20, Pids: 32}
	withLimits(t, l, func(t *testing.T, h *Host) {
		place := newPlace(t, h)
		for range 2 { // the second where the first was killed
			r := startTestReplica(t, "cgroup", clan+"wait", replicaLimits+"=1", replicaPlace+"="+place)
			members := r.members(4)
			r.signal(unix.SIGKILL)
			allDead(t, "a killed replica's run", members)
			r.gone()
			isAsBefore(t, place)
		}
	})
}

// TestReplicaWithLimitsLeavesNothing when it ends by itself.
func TestReplicaWithLimitsLeavesNothing(t *testing.T) {
	l := Limits{Memory: 64 << 20, Pids: 32}
	withLimits(t, l, func(t *testing.T, h *Host) {
		place := newPlace(t, h)
		for range 2 {
			r := startTestReplica(t, "cgroup", "echo done", replicaLimits+"=1", replicaPlace+"="+place)
			r.await("closing", 1)
			<-r.ended
			r.gone()
			isAsBefore(t, place)
		}
	})
}

// isAsBefore demands that nothing is below a cgroup, nor handed on by it.
func isAsBefore(t *testing.T, place string) {
	t.Helper()
	if left, handed := proc.CgroupsBelow(place), strings.TrimSpace(content(t, place, "cgroup.subtree_control")); len(left) > 0 || handed != "" {
		t.Errorf("left in the replica's cgroup: %v, %q", left, handed)
	}
}

// newPlace makes a cgroup for a replica alone, beside those of a host that keeps limits: it has the controllers.
func newPlace(t *testing.T, h *Host) string {
	t.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(h.cells.base.dir), "place-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proc.RemoveCgroup(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
