package integration

import (
	"slices"
	"testing"
	"time"
)

// With overlap = "replace" a run is stopped for the next tick, which starts when its whole tree is dead, on whichever
// replica. The runs ignore SIGTERM; by their own records there are never two.
// Promise: P3, P6
func TestReplace(t *testing.T) {
	slow(t)
	t.Parallel()
	c := newCluster(t, `
[jobs.hung]
schedule = "*/4 * * * * *"
command = 'exec "$SCRIBE" -for 1m -beat 20ms -ignore-term -child'
overlap = "replace"
lease = "1m"
kill_grace = "1s"
`)
	replicas := c.startAll(t, 2)
	first := c.awaitTick(t, soon, "hung", 0)
	c.awaitTick(t, 2*soon, "hung", first.Tick+12)
	stopAll(t, replicas)

	lines := c.lines(t, "hung")
	checkAlone(t, lines)
	runs := starts(lines)
	checkOnce(t, runs, 1)
	checkNotEarly(t, runs)
	c.checkTokensGrow(t, runs)
	outcomes := outcomesOf(c.history(t, "hung"))
	for n, run := range runs[:len(runs)-1] {
		next := runs[n+1]
		if next.Tick != run.Tick+4 && len(outcomes[run.Tick+4]) == 0 {
			t.Errorf("after tick %d comes %d, and the one in between has no outcome", run.Tick, next.Tick)
		}
		if o := outcomes[run.Tick]; len(o) != 1 || o[0].verdict() != "canceled replaced" || o[0].Signal != "SIGKILL" {
			t.Errorf("tick %d: %+v, want canceled replaced, by SIGKILL", run.Tick, o)
		}
		if len(event("term", of(run.RunID, lines))) == 0 {
			t.Errorf("tick %d was not asked to stop", run.Tick)
		}
		t.Logf("tick %d on %s: dead %v after the next tick, which ran on %s %v later", run.Tick, run.Replica,
			latest(of(run.RunID, lines)).Sub(time.Unix(next.Tick, 0)), next.Replica, next.At().Sub(latest(of(run.RunID, lines))))
	}
	wantDead(t, lines)
}

// A run that is to be replaced dies with its replica, and the next tick starts when the lease has ended. The test
// kills the replica that was told to stop a run before it has done so: each tick has one outcome.
// Promise: P3, P6
func TestReplacedRunDiesWithItsReplica(t *testing.T) {
	slow(t)
	t.Parallel()
	const lease = 3 * time.Second
	c := newCluster(t, `
[jobs.hung]
schedule = "*/10 * * * * *"
command = 'exec "$SCRIBE" -for 1m -beat 20ms -ignore-term'
overlap = "replace"
lease = "3s"
kill_grace = "8s"
`)
	replicas := c.startAll(t, 2)
	first := c.awaitTick(t, soon, "hung", 0)
	c.await(t, soon, "hung", "word to stop", func(l line) bool { return l.Event == "term" && l.RunID == first.RunID })
	named(t, replicas, first.Replica).Kill(t)
	killed := redisTime(t, c.Client)

	next := c.await(t, lease+soon, "hung", "next run", func(l line) bool { return l.Event == "start" && l.RunID != first.RunID })
	if after := next.At().Sub(killed); next.Replica == first.Replica || after > lease+time.Second+slack {
		t.Errorf("the next run started %v after the kill: %v", after, next)
	}
	c.awaitRun(t, soon, "hung", "abandoned run", func(r pastRun) bool { return r.RunID == first.RunID && r.Outcome == "abandoned" })
	lines := c.lines(t, "hung")
	checkAlone(t, lines)
	checkOnce(t, starts(lines), 1)
	c.checkTokensGrow(t, starts(lines))
	wantDead(t, of(first.RunID, lines))
	for tick, o := range outcomesOf(c.history(t, "hung")) {
		if len(o) != 1 {
			t.Errorf("tick %d: %+v, want one outcome", tick, o)
		}
	}
}

// A cancelled run is stopped at once, whatever its lease, and has its whole grace. The command comes from elsewhere.
// Promise: P3
func TestCancel(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `
[jobs.long]
schedule = "*/15 * * * * *"
command = 'exec "$SCRIBE" -for 10m -beat 20ms -ignore-term -child'
lease = "5m"
kill_grace = "2s"
retry = { max = 3, delay = "100ms" }
start_deadline = "1s"
`)
	c.command(t, "cancel", "long").want(t, 0, "nothing runs of job long")
	c.startAll(t, 2)
	first := c.awaitTick(t, 2*soon, "long", 0)
	c.await(t, soon, "long", "child", func(l line) bool { return l.PID != first.PID })
	c.command(t, "cancel", "long", "--run", "stranger").want(t, 1, "no run stranger")
	asked := redisTime(t, c.Client)
	c.command(t, "cancel", "long").want(t, 0, "asked replica "+first.Replica+" to stop run "+first.RunID)

	past := c.awaitRun(t, soon, "long", "end", func(r pastRun) bool { return r.RunID == first.RunID && r.Outcome != "running" })
	if past.verdict() != "canceled user" || past.Signal != "SIGKILL" || past.Attempt != 1 {
		t.Errorf("%+v, want canceled user by SIGKILL", past)
	}
	mine := of(first.RunID, c.lines(t, "long"))
	terms := event("term", mine)
	if len(terms) != 2 {
		t.Fatalf("SIGTERM reached %d processes, want 2", len(terms))
	}
	if told, lived := terms[0].At().Sub(asked), latest(mine).Sub(terms[0].At()); told > slack || lived < time.Second || lived > 2*time.Second+slack {
		t.Errorf("told after %v, dead %v later; the grace is 2s", told, lived)
	}
	wantDead(t, mine)
	if again := starts(c.lines(t, "long")); slices.ContainsFunc(again, func(l line) bool { return l.Tick == first.Tick && l.RunID != first.RunID }) {
		t.Errorf("the tick ran again:\n%s", text(again))
	}
}

// On a quorum a holder learns from its renewals that it is to stop.
// Promise: quorum
func TestReplaceOnQuorum(t *testing.T) {
	slow(t)
	t.Parallel()
	c, _ := newQuorumCluster(t, `
[jobs.hung]
schedule = "*/5 * * * * *"
command = 'exec "$SCRIBE" -for 1m -beat 20ms'
overlap = "replace"
lease = "2s"
`)
	replicas := c.startAll(t, 2)
	first := c.awaitTick(t, 2*soon, "hung", 0)
	last := c.awaitTick(t, 2*soon, "hung", first.Tick+10)
	c.command(t, "cancel", "hung").want(t, 0, "asked replica "+last.Replica+" to stop run "+last.RunID)
	c.awaitRun(t, soon, "hung", "canceled run", func(r pastRun) bool { return r.RunID == last.RunID && r.verdict() == "canceled user" })
	stopAll(t, replicas)

	lines := c.lines(t, "hung")
	checkAlone(t, lines)
	checkOnce(t, starts(lines), 1)
	c.checkTokensGrow(t, starts(lines))
	if o := outcomesOf(c.history(t, "hung"))[first.Tick]; len(o) != 1 || o[0].verdict() != "canceled replaced" {
		t.Errorf("the first run: %+v, want canceled replaced", o)
	}
}

// A run that was to stop is not recovered on a quorum. The test kills the replica that was told to stop it, before it
// has done so; its job is one with recovery.
// Promise: quorum
func TestStoppedRunIsNotRecoveredOnAQuorum(t *testing.T) {
	slow(t)
	t.Parallel()
	c, _ := newQuorumCluster(t, `
[jobs.hung]
schedule = "*/10 * * * * *"
command = 'exec "$SCRIBE" -for 5m -beat 20ms -ignore-term'
recover = true
lease = "2s"
kill_grace = "1m"
`)
	replicas := c.startAll(t, 2)
	first := c.awaitTick(t, 2*soon, "hung", 0)
	c.insist(t, "cancel", "hung").want(t, 0, "asked replica "+first.Replica+" to stop run "+first.RunID)
	c.await(t, soon, "hung", "word to stop", func(l line) bool { return l.Event == "term" && l.RunID == first.RunID })
	named(t, replicas, first.Replica).Kill(t)
	c.awaitRun(t, soon, "hung", "abandoned run", func(r pastRun) bool { return r.RunID == first.RunID && r.verdict() == "abandoned user" })
	next := c.awaitTick(t, 2*soon, "hung", first.Tick+1)
	for _, l := range starts(c.lines(t, "hung")) {
		if l.Tick == first.Tick && l.RunID != first.RunID {
			t.Errorf("carried on: %v", l)
		}
	}
	if next.Attempt != 1 || next.Token <= first.Token {
		t.Errorf("the next run: %v, after %v", next, first)
	}
	checkAlone(t, c.lines(t, "hung"))
	named(t, replicas, next.Replica).Kill(t) // no need to wait for the drain
}
