package integration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// family is a job of three processes, one of them in a session of its own, which take no notice of SIGTERM.
const family = `
[jobs.family]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 5m -beat 20ms -ignore-term -child -far'
start_deadline = "10s"
`

// awaitFamily waits until all of them have said something, and returns the first of it.
func (c *cluster) awaitFamily(t *testing.T) (first line) {
	t.Helper()
	first = c.awaitTick(t, soon, "family", 0)
	eventually(t, soon, "whole family", func() bool {
		pids := map[int]bool{}
		for _, l := range of(first.RunID, c.lines(t, "family")) {
			pids[l.PID] = true
		}
		return len(pids) == 3
	})
	return first
}

// warden is the pid of the replica's warden, as its first line says.
func (r *replica) warden(t *testing.T) (pid int) {
	t.Helper()
	said := r.WaitLog(t, soon, "announcement", announced)["warden"]
	if _, err := fmt.Sscanf(fmt.Sprint(said), "process %d", &pid); err != nil {
		t.Fatalf("the warden is %v: %v", said, err)
	}
	return pid
}

// A replica that is killed leaves no process (P7). The next tick of its job runs elsewhere.
// Promise: P7
func TestKilledReplicaLeavesNoOrphans(t *testing.T) {
	t.Parallel()
	const lease, promised = 9 * time.Second, time.Second
	c := newCluster(t, family+`lease = "9s"`)
	replicas := c.startAll(t, 5)
	first := c.awaitFamily(t)
	victim := named(t, replicas, first.Replica)
	warden := victim.warden(t)
	killed := redisTime(t, c.Client)
	victim.Kill(t)

	second := c.await(t, lease+soon, "family", "next run", func(l line) bool { return l.Event == "start" && l.RunID != first.RunID })
	lines := c.lines(t, "family")
	mine := of(first.RunID, lines)
	awaitDead(t, mine)
	lived := latest(mine).Sub(killed)
	if lived > promised+slack/2 { // by the end of the lease it would be at least five seconds
		t.Errorf("the last word of its processes came %v after the kill", lived)
	}
	t.Logf("the last word of its processes came %v after the kill", lived.Round(time.Millisecond))
	if second.Replica == first.Replica || second.Token <= first.Token {
		t.Errorf("the next run is not elsewhere, or its token is not greater:\n%s", text([]line{first, second}))
	}
	checkAlone(t, lines)
	eventually(t, soon, "end of the warden", func() bool { return over(warden) })
	told := slices.ContainsFunc(victim.LogEntries(), func(e logEntry) bool {
		return e.Message() == "warden kills a run" && e["job"] == "family" && e["run_id"] == first.RunID && e["reason"] == "the replica is gone"
	})
	if !told {
		t.Error("the warden has not said that it killed the run, and why")
	}
}

// A frozen replica loses its run before the lease ends (P3). The test stops the replica that runs a job for three
// leases.
// Promise: P3
func TestFrozenReplicaLosesItsRun(t *testing.T) {
	slow(t)
	t.Parallel()
	const lease = 6 * time.Second
	c := newCluster(t, family+"lease = \"6s\"\nkill_grace = \"2s\"\n")
	replicas := c.startAll(t, 5)
	first := c.awaitFamily(t)
	frozen := named(t, replicas, first.Replica)
	frozen.Stop(t)
	stopped := redisTime(t, c.Client)
	end := c.leaseEnd(t, "family")
	if end.After(stopped.Add(lease)) {
		t.Fatalf("%v are left of a lease of %v", end.Sub(stopped), lease)
	}

	second := c.await(t, lease+soon, "family", "next run", func(l line) bool { return l.Event == "start" && l.RunID != first.RunID })
	mine := of(first.RunID, c.lines(t, "family"))
	if i := slices.IndexFunc(mine, func(l line) bool { return !over(l.PID) }); i >= 0 {
		t.Errorf("process %d is alive when the next run starts", mine[i].PID)
	}
	if dead := latest(mine); !dead.Before(end) {
		t.Errorf("its processes wrote %v after the lease's end", dead.Sub(end))
	} else {
		t.Logf("its processes were dead %v before the lease's end", end.Sub(dead).Round(time.Millisecond))
	}
	if terms := event("term", mine); len(terms) == 0 {
		t.Error("there was no SIGTERM before the end")
	} else if lead := end.Sub(terms[0].At()); lead < time.Second/2 || lead > lease/2 {
		t.Errorf("SIGTERM came %v before the lease's end, want about 2s", lead)
	}
	if second.Replica == first.Replica || second.Token <= first.Token || second.At().Before(end) {
		t.Errorf("the next run is not elsewhere, later, with a greater token; the lease ended at %v:\n%s", end, text([]line{first, second}))
	}

	awaitTime(t, c.Client, stopped.Add(3*lease))
	frozen.Cont(t)
	frozen.WaitLog(t, soon, "word of the warden's kill", func(e logEntry) bool {
		return e.Message() == "warden killed a run" && e["job"] == "family" && e["run_id"] == first.RunID && e["reason"] != nil
	})
	frozen.WaitLog(t, soon, "end of the run", func(e logEntry) bool { return e.Message() == "finished" && e["run_id"] == first.RunID })
	named(t, replicas, second.Replica).Kill(t)
	third := c.await(t, lease+soon, "family", "third run", func(l line) bool {
		return l.Event == "start" && l.RunID != first.RunID && l.RunID != second.RunID
	})
	lines := c.lines(t, "family")
	checkAlone(t, lines)
	checkOnce(t, starts(lines), 1)
	checkNotEarly(t, starts(lines))
	c.checkTokensGrow(t, starts(lines))
	if third.Token <= second.Token {
		t.Errorf("the token did not grow:\n%s", text([]line{second, third}))
	}
	for _, r := range replicas { // no need to wait for the drain
		if r.Name != second.Replica {
			r.Kill(t)
		}
	}
}

// A replica replaces its killed warden, and a job's processes die with the replica, not with the warden.
// Promise: P7
func TestReplicaReplacesItsWarden(t *testing.T) {
	t.Parallel()
	c := newCluster(t, family+`lease = "1m"`)
	r := c.startAll(t, 1)[0]
	first := c.awaitFamily(t)
	if err := syscall.Kill(r.warden(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.WaitLog(t, soon, "new warden", message("warden replaced"))
	seen := len(c.lines(t, "family"))
	eventually(t, soon, "word of the family", func() bool { return len(c.lines(t, "family")) > seen+10 })
	r.Kill(t)
	mine := of(first.RunID, c.lines(t, "family"))
	awaitDead(t, mine)
}

// awaitDead waits until all processes that wrote some lines are dead. Their parent may be frozen, or dead itself, and
// not reap them.
func awaitDead(t *testing.T, lines []line) {
	t.Helper()
	eventually(t, soon, "end of all processes", func() bool {
		return !slices.ContainsFunc(lines, func(l line) bool { return !over(l.PID) })
	})
}

// over returns whether a process has ended, reaped or not.
func over(pid int) bool { s := processState(pid); return s == "" || strings.HasPrefix(s, "Z") }

// A replica that can have no warden drains. The test kills every warden as soon as it is there.
func TestReplicaThatCanHaveNoWardenDrains(t *testing.T) {
	slow(t)
	t.Parallel()
	c := newCluster(t, `
[jobs.quick]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
`)
	r := c.startAll(t, 1)[0]
	killed := map[int]bool{}
	kill := func(pid int) {
		if !killed[pid] && !over(pid) {
			killed[pid] = true
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
	}
	kill(r.warden(t))
	eventually(t, 2*soon, "end of the replica", func() bool {
		for _, e := range r.LogEntries() {
			if e.Message() == "warden replaced" {
				pid, _ := strconv.Atoi(fmt.Sprint(e["pid"]))
				kill(pid)
			}
		}
		return r.Ended()
	})
	if code := r.Wait(t, soon); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	r.WaitLog(t, soon, "reason", message("draining: warden cannot be started"))
}

// TestRunGoesOnWithoutItsLease has Redis away for longer than the lease of a job that says that it may go on.
func TestRunGoesOnWithoutItsLease(t *testing.T) {
	slow(t)
	t.Parallel()
	s := startRedis(t, redisOpts{})
	c := newClusterOn(t, s, `
[jobs.long]
schedule = "*/20 * * * * *"
command = 'exec "$SCRIBE" -for 12s -beat 100ms'
lease = "2s"
on_lease_lost = "continue"
`)
	c.startAll(t, 1)
	first := c.awaitTick(t, 30*time.Second+soon, "long", 0)
	s.Pause()
	eventually(t, soon, "word without Redis", func() bool { // which takes a second each
		return len(slices.DeleteFunc(c.lines(t, "long"), func(l line) bool { return l.Micros != 0 })) >= 6
	})
	s.Unpause()
	c.await(t, soon, "long", "good end", func(l line) bool { return l.RunID == first.RunID && l.Event == "end" })
	if terms := event("term", of(first.RunID, c.lines(t, "long"))); len(terms) > 0 {
		t.Errorf("it was told to stop:\n%s", text(terms))
	}
}
