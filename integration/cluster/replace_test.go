package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// With overlap = "replace" a run is stopped for the next tick, which starts when its whole tree is dead, on whichever
// replica. The runs ignore SIGTERM; by their own records there are never two.
// Promise: P3, P6
func TestReplace(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, `
[jobs.hung]
schedule = "*/4 * * * * *"
command = 'exec "$SCRIBE" -for 1m -beat 20ms -ignore-term -child'
overlap = "replace"
lease = "1m"
kill_grace = "1s"
`)
	replicas := c.StartAll(t, 2)
	first := c.AwaitTick(t, harness.Soon, "hung", 0)
	c.AwaitTick(t, 2*harness.Soon, "hung", first.Tick+12)
	harness.StopAll(t, replicas)

	lines := c.Lines(t, "hung")
	harness.CheckAlone(t, lines)
	runs := harness.Starts(lines)
	harness.CheckOnce(t, runs, 1)
	harness.CheckNotEarly(t, runs)
	c.CheckTokensGrow(t, runs)
	outcomes := harness.OutcomesOf(c.History(t, "hung"))
	for n, run := range runs[:len(runs)-1] {
		next := runs[n+1]
		if next.Tick != run.Tick+4 && len(outcomes[run.Tick+4]) == 0 {
			t.Errorf("after tick %d comes %d, and the one in between has no outcome", run.Tick, next.Tick)
		}
		if o := outcomes[run.Tick]; len(o) != 1 || o[0].Verdict() != "canceled replaced" || o[0].Signal != "SIGKILL" {
			t.Errorf("tick %d: %+v, want canceled replaced, by SIGKILL", run.Tick, o)
		}
		if len(harness.LinesOf("term", harness.RunLines(run.RunID, lines))) == 0 {
			t.Errorf("tick %d was not asked to stop", run.Tick)
		}
		t.Logf("tick %d on %s: dead %v after the next tick, which ran on %s %v later", run.Tick, run.Replica,
			harness.LatestAt(harness.RunLines(run.RunID, lines)).Sub(time.Unix(next.Tick, 0)), next.Replica, next.At().Sub(harness.LatestAt(harness.RunLines(run.RunID, lines))))
	}
	harness.WantDead(t, lines)
}

// A run that is to be replaced dies with its replica, and the next tick starts when the lease has ended. The test
// kills the replica that was told to stop a run before it has done so: each tick has one outcome.
// Promise: P3, P6
func TestReplacedRunDiesWithItsReplica(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const lease = 3 * time.Second
	c := harness.NewCluster(t, `
[jobs.hung]
schedule = "*/10 * * * * *"
command = 'exec "$SCRIBE" -for 1m -beat 20ms -ignore-term'
overlap = "replace"
lease = "3s"
kill_grace = "8s"
`)
	replicas := c.StartAll(t, 2)
	first := c.AwaitTick(t, harness.Soon, "hung", 0)
	c.Await(t, harness.Soon, "hung", "word to stop", func(l harness.Line) bool { return l.Event == "term" && l.RunID == first.RunID })
	harness.ReplicaNamed(t, replicas, first.Replica).Kill(t)
	killed := harness.RedisTime(t, c.Client)

	next := c.Await(t, lease+harness.Soon, "hung", "next run", func(l harness.Line) bool { return l.Event == "start" && l.RunID != first.RunID })
	if after := next.At().Sub(killed); next.Replica == first.Replica || after > lease+time.Second+harness.Slack {
		t.Errorf("the next run started %v after the kill: %v", after, next)
	}
	c.AwaitRun(t, harness.Soon, "hung", "abandoned run", func(r harness.PastRun) bool { return r.RunID == first.RunID && r.Outcome == "abandoned" })
	lines := c.Lines(t, "hung")
	harness.CheckAlone(t, lines)
	harness.CheckOnce(t, harness.Starts(lines), 1)
	c.CheckTokensGrow(t, harness.Starts(lines))
	harness.WantDead(t, harness.RunLines(first.RunID, lines))
	for tick, o := range harness.OutcomesOf(c.History(t, "hung")) {
		if len(o) != 1 {
			t.Errorf("tick %d: %+v, want one outcome", tick, o)
		}
	}
}

// A cancelled run is stopped at once, whatever its lease, and has its whole grace. The command comes from elsewhere.
// Promise: P3
func TestCancel(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, `
[jobs.long]
schedule = "*/15 * * * * *"
command = 'exec "$SCRIBE" -for 10m -beat 20ms -ignore-term -child'
lease = "5m"
kill_grace = "2s"
retry = { max = 3, delay = "100ms" }
start_deadline = "1s"
`)
	c.Command(t, "cancel", "long").Want(t, 0, "nothing runs of job long")
	c.StartAll(t, 2)
	first := c.AwaitTick(t, 2*harness.Soon, "long", 0)
	c.Await(t, harness.Soon, "long", "child", func(l harness.Line) bool { return l.PID != first.PID })
	c.Command(t, "cancel", "long", "--run", "stranger").Want(t, 1, "no run stranger")
	asked := harness.RedisTime(t, c.Client)
	c.Command(t, "cancel", "long").Want(t, 0, "asked replica "+first.Replica+" to stop run "+first.RunID)

	past := c.AwaitRun(t, harness.Soon, "long", "end", func(r harness.PastRun) bool { return r.RunID == first.RunID && r.Outcome != "running" })
	if past.Verdict() != "canceled user" || past.Signal != "SIGKILL" || past.Attempt != 1 {
		t.Errorf("%+v, want canceled user by SIGKILL", past)
	}
	mine := harness.RunLines(first.RunID, c.Lines(t, "long"))
	terms := harness.LinesOf("term", mine)
	if len(terms) != 2 {
		t.Fatalf("SIGTERM reached %d processes, want 2", len(terms))
	}
	if told, lived := terms[0].At().Sub(asked), harness.LatestAt(mine).Sub(terms[0].At()); told > harness.Slack || lived < time.Second || lived > 2*time.Second+harness.Slack {
		t.Errorf("told after %v, dead %v later; the grace is 2s", told, lived)
	}
	harness.WantDead(t, mine)
	if again := harness.Starts(c.Lines(t, "long")); slices.ContainsFunc(again, func(l harness.Line) bool { return l.Tick == first.Tick && l.RunID != first.RunID }) {
		t.Errorf("the tick ran again:\n%s", harness.TextOf(again))
	}
}

// On a quorum a holder learns from its renewals that it is to stop.
// Promise: quorum
func TestReplaceOnQuorum(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c, _ := harness.NewQuorumCluster(t, `
[jobs.hung]
schedule = "*/5 * * * * *"
command = 'exec "$SCRIBE" -for 1m -beat 20ms'
overlap = "replace"
lease = "2s"
`)
	replicas := c.StartAll(t, 2)
	first := c.AwaitTick(t, 2*harness.Soon, "hung", 0)
	last := c.AwaitTick(t, 2*harness.Soon, "hung", first.Tick+10)
	c.Command(t, "cancel", "hung").Want(t, 0, "asked replica "+last.Replica+" to stop run "+last.RunID)
	c.AwaitRun(t, harness.Soon, "hung", "canceled run", func(r harness.PastRun) bool { return r.RunID == last.RunID && r.Verdict() == "canceled user" })
	harness.StopAll(t, replicas)

	lines := c.Lines(t, "hung")
	harness.CheckAlone(t, lines)
	harness.CheckOnce(t, harness.Starts(lines), 1)
	c.CheckTokensGrow(t, harness.Starts(lines))
	if o := harness.OutcomesOf(c.History(t, "hung"))[first.Tick]; len(o) != 1 || o[0].Verdict() != "canceled replaced" {
		t.Errorf("the first run: %+v, want canceled replaced", o)
	}
}

// A run that was to stop is not recovered on a quorum. The test kills the replica that was told to stop it, before it
// has done so; its job is one with recovery.
// Promise: quorum
func TestStoppedRunIsNotRecoveredOnAQuorum(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c, _ := harness.NewQuorumCluster(t, `
[jobs.hung]
schedule = "*/10 * * * * *"
command = 'exec "$SCRIBE" -for 5m -beat 20ms -ignore-term'
recover = true
lease = "2s"
kill_grace = "1m"
`)
	replicas := c.StartAll(t, 2)
	first := c.AwaitTick(t, 2*harness.Soon, "hung", 0)
	c.Insist(t, "cancel", "hung").Want(t, 0, "asked replica "+first.Replica+" to stop run "+first.RunID)
	c.Await(t, harness.Soon, "hung", "word to stop", func(l harness.Line) bool { return l.Event == "term" && l.RunID == first.RunID })
	harness.ReplicaNamed(t, replicas, first.Replica).Kill(t)
	c.AwaitRun(t, harness.Soon, "hung", "abandoned run", func(r harness.PastRun) bool { return r.RunID == first.RunID && r.Verdict() == "abandoned user" })
	next := c.AwaitTick(t, 2*harness.Soon, "hung", first.Tick+1)
	for _, l := range harness.Starts(c.Lines(t, "hung")) {
		if l.Tick == first.Tick && l.RunID != first.RunID {
			t.Errorf("carried on: %v", l)
		}
	}
	if next.Attempt != 1 || next.Token <= first.Token {
		t.Errorf("the next run: %v, after %v", next, first)
	}
	harness.CheckAlone(t, c.Lines(t, "hung"))
	harness.ReplicaNamed(t, replicas, next.Replica).Kill(t) // no need to wait for the drain
}
