package process

import (
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// family is a job of three processes, one of them in a session of its own, which take no notice of SIGTERM.
const family = `
[jobs.family]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 5m -beat 20ms -ignore-term -child -far'
start_deadline = "10s"
`

// A replica that is killed leaves no process (P7). The next tick of its job runs elsewhere.
// Promise: P7
func TestKilledReplicaLeavesNoOrphans(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const lease, promised = 9 * time.Second, time.Second
	c := harness.NewCluster(t, family+`lease = "9s"`)
	replicas := c.StartAll(t, 5)
	first := c.AwaitFamily(t)
	victim := harness.ReplicaNamed(t, replicas, first.Replica)
	warden := victim.Warden(t)
	killed := harness.RedisTime(t, c.Client)
	victim.Kill(t)

	second := c.Await(t, lease+harness.Soon, "family", "next run", func(l harness.Line) bool { return l.Event == "start" && l.RunID != first.RunID })
	lines := c.Lines(t, "family")
	mine := harness.RunLines(first.RunID, lines)
	harness.AwaitDead(t, mine)
	lived := harness.LatestAt(mine).Sub(killed)
	if lived > promised+harness.Slack/2 { // by the end of the lease it would be at least five seconds
		t.Errorf("the last word of its processes came %v after the kill", lived)
	}
	t.Logf("the last word of its processes came %v after the kill", lived.Round(time.Millisecond))
	if second.Replica == first.Replica || second.Token <= first.Token {
		t.Errorf("the next run is not elsewhere, or its token is not greater:\n%s", harness.TextOf([]harness.Line{first, second}))
	}
	harness.CheckAlone(t, lines)
	harness.Eventually(t, harness.Soon, "end of the warden", func() bool { return harness.HasEnded(warden) })
	told := slices.ContainsFunc(victim.LogEntries(), func(e harness.LogEntry) bool {
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
	testtier.Slow(t)
	t.Parallel()
	const lease = 6 * time.Second
	c := harness.NewCluster(t, family+"lease = \"6s\"\nkill_grace = \"2s\"\n")
	replicas := c.StartAll(t, 5)
	first := c.AwaitFamily(t)
	frozen := harness.ReplicaNamed(t, replicas, first.Replica)
	frozen.Stop(t)
	stopped := harness.RedisTime(t, c.Client)
	end := c.LeaseEnd(t, "family")
	if end.After(stopped.Add(lease)) {
		t.Fatalf("%v are left of a lease of %v", end.Sub(stopped), lease)
	}

	second := c.Await(t, lease+harness.Soon, "family", "next run", func(l harness.Line) bool { return l.Event == "start" && l.RunID != first.RunID })
	mine := harness.RunLines(first.RunID, c.Lines(t, "family"))
	if i := slices.IndexFunc(mine, func(l harness.Line) bool { return !harness.HasEnded(l.PID) }); i >= 0 {
		t.Errorf("process %d is alive when the next run starts", mine[i].PID)
	}
	if dead := harness.LatestAt(mine); !dead.Before(end) {
		t.Errorf("its processes wrote %v after the lease's end", dead.Sub(end))
	} else {
		t.Logf("its processes were dead %v before the lease's end", end.Sub(dead).Round(time.Millisecond))
	}
	if terms := harness.LinesOf("term", mine); len(terms) == 0 {
		t.Error("there was no SIGTERM before the end")
	} else if lead := end.Sub(terms[0].At()); lead < time.Second/2 || lead > lease/2 {
		t.Errorf("SIGTERM came %v before the lease's end, want about 2s", lead)
	}
	if second.Replica == first.Replica || second.Token <= first.Token || second.At().Before(end) {
		t.Errorf("the next run is not elsewhere, later, with a greater token; the lease ended at %v:\n%s", end, harness.TextOf([]harness.Line{first, second}))
	}

	harness.AwaitTime(t, c.Client, stopped.Add(3*lease))
	frozen.Cont(t)
	frozen.WaitLog(t, harness.Soon, "word of the warden's kill", func(e harness.LogEntry) bool {
		return e.Message() == "warden killed a run" && e["job"] == "family" && e["run_id"] == first.RunID && e["reason"] != nil
	})
	frozen.WaitLog(t, harness.Soon, "end of the run", func(e harness.LogEntry) bool { return e.Message() == "finished" && e["run_id"] == first.RunID })
	harness.ReplicaNamed(t, replicas, second.Replica).Kill(t)
	third := c.Await(t, lease+harness.Soon, "family", "third run", func(l harness.Line) bool {
		return l.Event == "start" && l.RunID != first.RunID && l.RunID != second.RunID
	})
	lines := c.Lines(t, "family")
	harness.CheckAlone(t, lines)
	harness.CheckOnce(t, harness.Starts(lines), 1)
	harness.CheckNotEarly(t, harness.Starts(lines))
	c.CheckTokensGrow(t, harness.Starts(lines))
	if third.Token <= second.Token {
		t.Errorf("the token did not grow:\n%s", harness.TextOf([]harness.Line{second, third}))
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
	c := harness.NewCluster(t, family+`lease = "1m"`)
	r := c.StartAll(t, 1)[0]
	first := c.AwaitFamily(t)
	if err := syscall.Kill(r.Warden(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.WaitLog(t, harness.Soon, "new warden", harness.MessageHas("warden replaced"))
	seen := len(c.Lines(t, "family"))
	harness.Eventually(t, harness.Soon, "word of the family", func() bool { return len(c.Lines(t, "family")) > seen+10 })
	r.Kill(t)
	mine := harness.RunLines(first.RunID, c.Lines(t, "family"))
	harness.AwaitDead(t, mine)
}

// A replica that can have no warden drains. The test kills every warden as soon as it is there.
func TestReplicaThatCanHaveNoWardenDrains(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, `
[jobs.quick]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
`)
	r := c.StartAll(t, 1)[0]
	killed := map[int]bool{}
	kill := func(pid int) {
		if !killed[pid] && !harness.HasEnded(pid) {
			killed[pid] = true
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
	}
	kill(r.Warden(t))
	harness.Eventually(t, 2*harness.Soon, "end of the replica", func() bool {
		for _, e := range r.LogEntries() {
			if e.Message() == "warden replaced" {
				pid, _ := strconv.Atoi(fmt.Sprint(e["pid"]))
				kill(pid)
			}
		}
		return r.Ended()
	})
	if code := r.Wait(t, harness.Soon); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	r.WaitLog(t, harness.Soon, "reason", harness.MessageHas("draining: warden cannot be started"))
}

// TestRunGoesOnWithoutItsLease has Redis away for longer than the lease of a job that says that it may go on.
func TestRunGoesOnWithoutItsLease(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := harness.StartRedis(t, harness.RedisOpts{})
	c := harness.NewClusterOn(t, s, `
[jobs.long]
schedule = "*/20 * * * * *"
command = 'exec "$SCRIBE" -for 12s -beat 100ms'
lease = "2s"
on_lease_lost = "continue"
`)
	c.StartAll(t, 1)
	first := c.AwaitTick(t, 30*time.Second+harness.Soon, "long", 0)
	s.Pause()
	harness.Eventually(t, harness.Soon, "word without Redis", func() bool { // which takes a second each
		return len(slices.DeleteFunc(c.Lines(t, "long"), func(l harness.Line) bool { return l.Micros != 0 })) >= 6
	})
	s.Unpause()
	c.Await(t, harness.Soon, "long", "good end", func(l harness.Line) bool { return l.RunID == first.RunID && l.Event == "end" })
	if terms := harness.LinesOf("term", harness.RunLines(first.RunID, c.Lines(t, "long"))); len(terms) > 0 {
		t.Errorf("it was told to stop:\n%s", harness.TextOf(terms))
	}
}
