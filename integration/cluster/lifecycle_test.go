package cluster

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// When the replica that runs a job is killed, the next free tick runs elsewhere, with a greater token.
// Promise: P6
func TestTakeOverAfterKill(t *testing.T) {
	t.Parallel()
	c := harness.NewCluster(t, `
[jobs.long]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 1m -beat 100ms'
lease = "2s"
`)
	const lease = 2 * time.Second
	replicas := c.StartAll(t, 3)
	first := c.AwaitTick(t, harness.Soon, "long", 0)
	victim := harness.ReplicaNamed(t, replicas, first.Replica)
	victim.Kill(t)
	killed := harness.RedisTime(t, c.Client)

	second := c.Await(t, lease+harness.Soon, "long", "second run", func(l harness.Line) bool { return l.Event == "start" && l.RunID != first.RunID })
	if second.Replica == first.Replica || second.Token <= first.Token {
		t.Errorf("the next run is not elsewhere, or its token is not greater:\n%s", harness.TextOf([]harness.Line{first, second}))
	}
	took := second.At().Sub(killed)
	if took > lease+time.Second+harness.Slack {
		t.Errorf("the take-over took %v, with a lease of %v", took, lease)
	}
	past := c.AwaitRun(t, harness.Soon, "long", "abandoned run", func(r harness.PastRun) bool { return r.RunID == first.RunID && r.Outcome == "abandoned" })
	told := past.Finished.Sub(killed)
	if told > lease+2*time.Second+harness.Slack || past.Token != first.Token || past.Replica != first.Replica {
		t.Errorf("recorded %v after the kill: %+v, of %v", told, past, first)
	}
	t.Logf("lease %v: recorded as abandoned %v after the kill, next run %v after the kill", lease, told.Round(time.Millisecond), took.Round(time.Millisecond))
}

// A replica that drains waits for its running job.
func TestDrainWaitsForRunningJob(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, `
[jobs.quick]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
parallel = 20
per_tick = 1
per_replica = 20
start_deadline = "10s"

[jobs.long]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 4s'
`)
	replicas := c.StartAll(t, 3)
	long := c.AwaitTick(t, harness.Soon, "long", 0)
	r := harness.ReplicaNamed(t, replicas, long.Replica)
	r.Term(t)
	r.WaitLog(t, harness.Soon, "drain", harness.Draining)
	drain := harness.RedisTime(t, c.Client)
	r.WantDrained(t)
	if !slices.ContainsFunc(c.Lines(t, "long"), func(l harness.Line) bool { return l.RunID == long.RunID && l.Event == "end" }) {
		t.Error("the replica ended before its job")
	}
	over := c.AwaitTick(t, harness.Soon, "quick", harness.RedisTime(t, c.Client).Unix()+1)
	for tick := harness.Starts(c.Lines(t, "quick"))[0].Tick; tick <= over.Tick; tick++ {
		run := c.Await(t, harness.Soon, "quick", fmt.Sprintf("run of tick %d itself", tick), func(l harness.Line) bool { return l.Event == "start" && l.Tick == tick })
		if run.Replica == r.Name && time.Unix(tick, 0).After(drain) {
			t.Errorf("claimed during the drain, which began at %v: %v", drain, run)
		}
	}
	harness.CheckOnce(t, harness.Starts(c.Lines(t, "quick")), 1)
	c.AwaitRun(t, harness.Soon, "long", "good end", func(r harness.PastRun) bool { return r.RunID == long.RunID && r.Outcome == "ok" })
	harness.CheckAlone(t, c.Lines(t, "long"))
}

// A job that outlasts drain_timeout and ignores SIGTERM is killed at its end. Only then does the next run start,
// which it does at once.
// Promise: P3, P9
func TestDrainStopsJobAtItsLimit(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const limit, grace = 4 * time.Second, 2 * time.Second
	c := harness.NewCluster(t, `
[replica]
drain_timeout = "4s"

[jobs.stubborn]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 1m -beat 20ms -ignore-term -child'
lease = "1m"
kill_grace = "2s"
`)
	replicas := c.StartAll(t, 2)
	first := c.AwaitTick(t, harness.Soon, "stubborn", 0)
	c.Await(t, harness.Soon, "stubborn", "child", func(l harness.Line) bool { return l.PID != first.PID })
	r := harness.ReplicaNamed(t, replicas, first.Replica)
	asked := harness.RedisTime(t, c.Client)
	r.Term(t)
	r.WantDrained(t)
	next := c.Await(t, harness.Soon, "stubborn", "next run", func(l harness.Line) bool { return l.Event == "start" && l.RunID != first.RunID })

	lines := c.Lines(t, "stubborn")
	mine := harness.RunLines(first.RunID, lines)
	if terms := harness.LinesOf("term", mine); len(terms) != 2 {
		t.Errorf("SIGTERM reached %d processes of the tree, want 2:\n%s", len(terms), harness.TextOf(terms))
	} else if after := terms[0].At().Sub(asked); after < limit-grace-100*time.Millisecond || after > limit-grace+harness.Slack {
		t.Errorf("SIGTERM %v after the drain began, want %v", after, limit-grace)
	}
	dead, began := harness.LatestAt(mine).Sub(asked), next.At().Sub(asked)
	if dead < limit-time.Second || dead > limit+harness.Slack {
		t.Errorf("dead %v after the drain began, want %v", dead, limit)
	}
	if began > dead+time.Second+harness.Slack || next.Replica == r.Name {
		t.Errorf("the next run began %v after the old one's end: %v", began-dead, next)
	}
	harness.CheckAlone(t, lines)
	past := c.AwaitRun(t, harness.Soon, "stubborn", "end of the run", func(r harness.PastRun) bool { return r.RunID == first.RunID && r.Outcome != "running" })
	if past.Verdict() != "canceled drain" || past.Signal != "SIGKILL" {
		t.Errorf("outcome %q, signal %q; want canceled drain by SIGKILL", past.Verdict(), past.Signal)
	}
	t.Logf("drain_timeout %v: dead after %v, next run %v later", limit, dead.Round(time.Millisecond), (began - dead).Round(time.Millisecond))
}

// A draining replica renews the lease of its job until its processes are dead. The drain is three times as long as
// that lease, and the job goes on in its grace: no other replica starts the job before, and other jobs go on
// elsewhere.
// Promise: P3, P9
func TestDrainRenewsTheLeaseToTheEnd(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const limit, grace = 9 * time.Second, 5 * time.Second
	c := harness.NewCluster(t, `
[replica]
drain_timeout = "9s"

[jobs.stubborn]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 1m -beat 20ms -ignore-term -child'
lease = "3s"
kill_grace = "5s"

[jobs.quick]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
start_deadline = "20s"
`)
	replicas := c.StartAll(t, 3)
	first := c.AwaitTick(t, harness.Soon, "stubborn", 0)
	c.Await(t, harness.Soon, "stubborn", "child", func(l harness.Line) bool { return l.PID != first.PID })
	r := harness.ReplicaNamed(t, replicas, first.Replica)
	r.Term(t)
	r.WaitLog(t, harness.Soon, "drain", harness.Draining)
	asked := harness.RedisTime(t, c.Client)
	meanwhile := c.AwaitTick(t, harness.Soon, "quick", asked.Unix()+2)
	if meanwhile.Replica == r.Name || r.Ended() {
		t.Errorf("the drain was over (%v), or its replica took a tick: %v", r.Ended(), meanwhile)
	}
	r.WantDrained(t)
	next := c.Await(t, harness.Soon, "stubborn", "next run", func(l harness.Line) bool { return l.Event == "start" && l.RunID != first.RunID })

	lines := c.Lines(t, "stubborn")
	mine := harness.RunLines(first.RunID, lines)
	if dead := harness.LatestAt(mine).Sub(asked); dead < limit-time.Second {
		t.Errorf("dead %v after the drain began, want %v", dead, limit)
	}
	if terms := harness.LinesOf("term", mine); len(terms) == 0 || terms[0].At().Sub(asked) < limit-grace-time.Second {
		t.Errorf("SIGTERM came too early, or never: drain at %v:\n%s", asked, harness.TextOf(terms))
	}
	if next.Replica == r.Name || next.Token <= first.Token {
		t.Errorf("the next run is not elsewhere, or its token is not greater:\n%s", harness.TextOf([]harness.Line{first, next}))
	}
	harness.CheckAlone(t, lines)
	harness.CheckOnce(t, harness.Starts(c.Lines(t, "")), 1)
	past := c.AwaitRun(t, harness.Soon, "stubborn", "end of the run", func(r harness.PastRun) bool { return r.RunID == first.RunID && r.Outcome != "running" })
	if past.Verdict() != "canceled drain" {
		t.Errorf("outcome %q, want canceled drain", past.Verdict())
	}
	for _, o := range replicas { // no need to wait for the run that has taken its place
		if o != r {
			o.Kill(t)
		}
	}
}

// A second SIGTERM stops a replica at once.
func TestSecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	c := harness.NewCluster(t, `
[replica]
drain_timeout = "2m"

[jobs.stubborn]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 5m -beat 20ms -ignore-term -child'
kill_grace = "1m"
lease = "1m"
`)
	r := c.StartAll(t, 1)[0]
	first := c.AwaitTick(t, harness.Soon, "stubborn", 0)
	c.Await(t, harness.Soon, "stubborn", "child", func(l harness.Line) bool { return l.PID != first.PID })
	r.Term(t)
	r.WaitLog(t, harness.Soon, "drain", harness.Draining)
	harness.AwaitTime(t, c.Client, harness.RedisTime(t, c.Client).Add(1500*time.Millisecond)) // else it is the same signal
	asked := harness.RedisTime(t, c.Client)
	r.Signal(t, syscall.SIGTERM)
	r.WantDrained(t)
	if took := harness.RedisTime(t, c.Client).Sub(asked); took > 2*harness.Slack {
		t.Errorf("the second signal took %v", took)
	}
	lines := c.Lines(t, "")
	harness.WantDead(t, lines)
	if len(harness.Starts(lines)) != 1 {
		t.Errorf("more than one run:\n%s", harness.TextOf(harness.Starts(lines)))
	}
	c.AwaitRun(t, harness.Soon, "stubborn", "cancelled run", func(r harness.PastRun) bool { return r.RunID == first.RunID && r.Verdict() == "canceled drain" })
}

// A job with fan-out runs each tick on three replicas. A tick finds all slots free, because its runs take less than the five seconds to the next one.
func TestFanOut(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, `
[jobs.fan]
schedule = "*/5 * * * * *"
command = 'exec "$SCRIBE"'
parallel = 3
per_tick = 3
start_deadline = "20s"
`)
	replicas := c.StartAll(t, 3)
	const ticks, period = 3, 5
	first := c.AwaitTick(t, harness.Soon, "fan", 0)
	from := c.AwaitTick(t, harness.Soon, "fan", first.Tick+1).Tick // all replicas are there by now
	for tick := from; tick < from+ticks*period; tick += period {
		var runs []harness.Line
		harness.Eventually(t, 2*harness.Soon, "three runs of a tick", func() bool {
			runs = slices.DeleteFunc(harness.Starts(c.Lines(t, "fan")), func(l harness.Line) bool { return l.Tick != tick })
			return len(runs) == 3
		})
		on, in := map[string]bool{}, map[int]bool{}
		for _, l := range runs {
			on[l.Replica], in[l.Slot] = true, true
			if l.Slots != 3 {
				t.Errorf("CRONCLAVE_SLOTS is %d, want 3", l.Slots)
			}
		}
		if len(on) != 3 || !in[0] || !in[1] || !in[2] {
			t.Errorf("tick %d is not on three replicas in slots 0, 1 and 2:\n%s", tick, harness.TextOf(runs))
		}
	}
	harness.StopAll(t, replicas)
	runs := harness.Starts(c.Lines(t, "fan"))
	harness.CheckOnce(t, runs, 3)
	harness.CheckNotEarly(t, runs)
	tokens := map[int64]bool{}
	for _, l := range runs {
		if tokens[l.Token] {
			t.Errorf("token %d was given twice", l.Token)
		}
		tokens[l.Token] = true
	}
}

// A tick that comes due while the job runs is skipped.
func TestOverlapIsSkipped(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, `
[jobs.slow]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 2500ms'
start_deadline = "20s"
`)
	replicas := c.StartAll(t, 3)
	first := c.AwaitTick(t, harness.Soon, "slow", 0)
	c.AwaitTick(t, harness.Soon, "slow", first.Tick+6)
	harness.StopAll(t, replicas)

	lines := c.Lines(t, "slow")
	harness.CheckAlone(t, lines)
	harness.CheckOnce(t, harness.Starts(lines), 1)
	c.CheckTokensGrow(t, harness.Starts(lines))
	outcomes := harness.OutcomesOf(c.History(t, "slow"))
	last := harness.Starts(lines)[len(harness.Starts(lines))-1]
	for tick := first.Tick; tick <= last.Tick; tick++ {
		want := "skipped overlap"
		if slices.ContainsFunc(lines, func(l harness.Line) bool { return l.Tick == tick }) {
			want = "ok"
		}
		if o := outcomes[tick]; len(o) != 1 || o[0].Verdict() != want {
			t.Errorf("tick %d: %+v, want %q once", tick, o, want)
		}
	}
	t.Logf("%d ticks, %d runs", last.Tick-first.Tick+1, len(harness.Starts(lines)))
}
