package integration

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// slack is what a slow, busy machine may need for something that takes milliseconds.
const slack = 5 * time.Second

// When the replica that runs a job is killed, the next free tick runs elsewhere, with a greater token.
// Promise: P6
func TestTakeOverAfterKill(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `
[jobs.long]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 1m -beat 100ms'
lease = "2s"
`)
	const lease = 2 * time.Second
	replicas := c.startAll(t, 3)
	first := c.awaitTick(t, soon, "long", 0)
	victim := named(t, replicas, first.Replica)
	victim.Kill(t)
	killed := redisTime(t, c.Client)

	second := c.await(t, lease+soon, "long", "second run", func(l line) bool { return l.Event == "start" && l.RunID != first.RunID })
	if second.Replica == first.Replica || second.Token <= first.Token {
		t.Errorf("the next run is not elsewhere, or its token is not greater:\n%s", text([]line{first, second}))
	}
	took := second.At().Sub(killed)
	if took > lease+time.Second+slack {
		t.Errorf("the take-over took %v, with a lease of %v", took, lease)
	}
	past := c.awaitRun(t, soon, "long", "abandoned run", func(r pastRun) bool { return r.RunID == first.RunID && r.Outcome == "abandoned" })
	told := past.Finished.Sub(killed)
	if told > lease+2*time.Second+slack || past.Token != first.Token || past.Replica != first.Replica {
		t.Errorf("recorded %v after the kill: %+v, of %v", told, past, first)
	}
	t.Logf("lease %v: recorded as abandoned %v after the kill, next run %v after the kill", lease, told.Round(time.Millisecond), took.Round(time.Millisecond))
}

// named finds the replica of a name.
func named(t *testing.T, replicas []*replica, name string) *replica {
	t.Helper()
	i := slices.IndexFunc(replicas, func(r *replica) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("no replica %s", name)
	}
	return replicas[i]
}

// A replica that drains waits for its running job.
func TestDrainWaitsForRunningJob(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `
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
	replicas := c.startAll(t, 3)
	long := c.awaitTick(t, soon, "long", 0)
	r := named(t, replicas, long.Replica)
	r.Term(t)
	r.WaitLog(t, soon, "drain", draining)
	drain := redisTime(t, c.Client)
	r.wantDrained(t)
	if !slices.ContainsFunc(c.lines(t, "long"), func(l line) bool { return l.RunID == long.RunID && l.Event == "end" }) {
		t.Error("the replica ended before its job")
	}
	over := c.awaitTick(t, soon, "quick", redisTime(t, c.Client).Unix()+1)
	for tick := starts(c.lines(t, "quick"))[0].Tick; tick <= over.Tick; tick++ {
		run := c.await(t, soon, "quick", fmt.Sprintf("run of tick %d itself", tick), func(l line) bool { return l.Event == "start" && l.Tick == tick })
		if run.Replica == r.Name && time.Unix(tick, 0).After(drain) {
			t.Errorf("claimed during the drain, which began at %v: %v", drain, run)
		}
	}
	checkOnce(t, starts(c.lines(t, "quick")), 1)
	c.awaitRun(t, soon, "long", "good end", func(r pastRun) bool { return r.RunID == long.RunID && r.Outcome == "ok" })
	checkAlone(t, c.lines(t, "long"))
}

// A job that outlasts drain_timeout and ignores SIGTERM is killed at its end. Only then does the next run start,
// which it does at once.
// Promise: P3, P9
func TestDrainStopsJobAtItsLimit(t *testing.T) {
	t.Parallel()
	const limit, grace = 4 * time.Second, 2 * time.Second
	c := newCluster(t, `
[replica]
drain_timeout = "4s"

[jobs.stubborn]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 1m -beat 20ms -ignore-term -child'
lease = "1m"
kill_grace = "2s"
`)
	replicas := c.startAll(t, 2)
	first := c.awaitTick(t, soon, "stubborn", 0)
	c.await(t, soon, "stubborn", "child", func(l line) bool { return l.PID != first.PID })
	r := named(t, replicas, first.Replica)
	asked := redisTime(t, c.Client)
	r.Term(t)
	r.wantDrained(t)
	next := c.await(t, soon, "stubborn", "next run", func(l line) bool { return l.Event == "start" && l.RunID != first.RunID })

	lines := c.lines(t, "stubborn")
	mine := of(first.RunID, lines)
	if terms := event("term", mine); len(terms) != 2 {
		t.Errorf("SIGTERM reached %d processes of the tree, want 2:\n%s", len(terms), text(terms))
	} else if after := terms[0].At().Sub(asked); after < limit-grace-100*time.Millisecond || after > limit-grace+slack {
		t.Errorf("SIGTERM %v after the drain began, want %v", after, limit-grace)
	}
	dead, began := latest(mine).Sub(asked), next.At().Sub(asked)
	if dead < limit-time.Second || dead > limit+slack {
		t.Errorf("dead %v after the drain began, want %v", dead, limit)
	}
	if began > dead+time.Second+slack || next.Replica == r.Name {
		t.Errorf("the next run began %v after the old one's end: %v", began-dead, next)
	}
	checkAlone(t, lines)
	past := c.awaitRun(t, soon, "stubborn", "end of the run", func(r pastRun) bool { return r.RunID == first.RunID && r.Outcome != "running" })
	if past.verdict() != "canceled drain" || past.Signal != "SIGKILL" {
		t.Errorf("outcome %q, signal %q; want canceled drain by SIGKILL", past.verdict(), past.Signal)
	}
	t.Logf("drain_timeout %v: dead after %v, next run %v later", limit, dead.Round(time.Millisecond), (began - dead).Round(time.Millisecond))
}

// A draining replica renews the lease of its job until its processes are dead. The drain is three times as long as
// that lease, and the job goes on in its grace: no other replica starts the job before, and other jobs go on
// elsewhere.
// Promise: P3, P9
func TestDrainRenewsTheLeaseToTheEnd(t *testing.T) {
	slow(t)
	t.Parallel()
	const limit, grace = 9 * time.Second, 5 * time.Second
	c := newCluster(t, `
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
	replicas := c.startAll(t, 3)
	first := c.awaitTick(t, soon, "stubborn", 0)
	c.await(t, soon, "stubborn", "child", func(l line) bool { return l.PID != first.PID })
	r := named(t, replicas, first.Replica)
	r.Term(t)
	r.WaitLog(t, soon, "drain", draining)
	asked := redisTime(t, c.Client)
	meanwhile := c.awaitTick(t, soon, "quick", asked.Unix()+2)
	if meanwhile.Replica == r.Name || r.Ended() {
		t.Errorf("the drain was over (%v), or its replica took a tick: %v", r.Ended(), meanwhile)
	}
	r.wantDrained(t)
	next := c.await(t, soon, "stubborn", "next run", func(l line) bool { return l.Event == "start" && l.RunID != first.RunID })

	lines := c.lines(t, "stubborn")
	mine := of(first.RunID, lines)
	if dead := latest(mine).Sub(asked); dead < limit-time.Second {
		t.Errorf("dead %v after the drain began, want %v", dead, limit)
	}
	if terms := event("term", mine); len(terms) == 0 || terms[0].At().Sub(asked) < limit-grace-time.Second {
		t.Errorf("SIGTERM came too early, or never: drain at %v:\n%s", asked, text(terms))
	}
	if next.Replica == r.Name || next.Token <= first.Token {
		t.Errorf("the next run is not elsewhere, or its token is not greater:\n%s", text([]line{first, next}))
	}
	checkAlone(t, lines)
	checkOnce(t, starts(c.lines(t, "")), 1)
	past := c.awaitRun(t, soon, "stubborn", "end of the run", func(r pastRun) bool { return r.RunID == first.RunID && r.Outcome != "running" })
	if past.verdict() != "canceled drain" {
		t.Errorf("outcome %q, want canceled drain", past.verdict())
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
	c := newCluster(t, `
[replica]
drain_timeout = "2m"

[jobs.stubborn]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 5m -beat 20ms -ignore-term -child'
kill_grace = "1m"
lease = "1m"
`)
	r := c.startAll(t, 1)[0]
	first := c.awaitTick(t, soon, "stubborn", 0)
	c.await(t, soon, "stubborn", "child", func(l line) bool { return l.PID != first.PID })
	r.Term(t)
	r.WaitLog(t, soon, "drain", draining)
	awaitTime(t, c.Client, redisTime(t, c.Client).Add(1500*time.Millisecond)) // else it is the same signal
	asked := redisTime(t, c.Client)
	r.signal(t, syscall.SIGTERM)
	r.wantDrained(t)
	if took := redisTime(t, c.Client).Sub(asked); took > 2*slack {
		t.Errorf("the second signal took %v", took)
	}
	lines := c.lines(t, "")
	wantDead(t, lines)
	if len(starts(lines)) != 1 {
		t.Errorf("more than one run:\n%s", text(starts(lines)))
	}
	c.awaitRun(t, soon, "stubborn", "cancelled run", func(r pastRun) bool { return r.RunID == first.RunID && r.verdict() == "canceled drain" })
}

// wantDead demands that all processes that wrote some lines are dead, and reaped soon.
func wantDead(t *testing.T, lines []line) {
	t.Helper()
	seen := map[int]bool{}
	for _, l := range lines {
		if seen[l.PID] {
			continue
		}
		seen[l.PID] = true
		if state := processState(l.PID); state != "" && !strings.HasPrefix(state, "Z") {
			t.Errorf("process %d of the job is there still, in state %s: %v", l.PID, state, l)
			continue
		}
		eventually(t, slack, "end of a zombie", func() bool { return processState(l.PID) == "" })
	}
}

// A job with fan-out runs each tick on three replicas.
func TestFanOut(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `
[jobs.fan]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
parallel = 3
per_tick = 3
start_deadline = "20s"
`)
	replicas := c.startAll(t, 3)
	const ticks = 5
	first := c.awaitTick(t, soon, "fan", 0)
	from := c.awaitTick(t, soon, "fan", first.Tick+2).Tick // all replicas are there by now
	for tick := from; tick < from+ticks; tick++ {
		var runs []line
		eventually(t, 2*soon, "three runs of a tick", func() bool {
			runs = slices.DeleteFunc(starts(c.lines(t, "fan")), func(l line) bool { return l.Tick != tick })
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
			t.Errorf("tick %d is not on three replicas in slots 0, 1 and 2:\n%s", tick, text(runs))
		}
	}
	stopAll(t, replicas)
	runs := starts(c.lines(t, "fan"))
	checkOnce(t, runs, 3)
	checkNotEarly(t, runs)
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
	t.Parallel()
	c := newCluster(t, `
[jobs.slow]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 2500ms'
start_deadline = "20s"
`)
	replicas := c.startAll(t, 3)
	first := c.awaitTick(t, soon, "slow", 0)
	c.awaitTick(t, soon, "slow", first.Tick+6)
	stopAll(t, replicas)

	lines := c.lines(t, "slow")
	checkAlone(t, lines)
	checkOnce(t, starts(lines), 1)
	c.checkTokensGrow(t, starts(lines))
	outcomes := outcomesOf(c.history(t, "slow"))
	last := starts(lines)[len(starts(lines))-1]
	for tick := first.Tick; tick <= last.Tick; tick++ {
		want := "skipped overlap"
		if slices.ContainsFunc(lines, func(l line) bool { return l.Tick == tick }) {
			want = "ok"
		}
		if o := outcomes[tick]; len(o) != 1 || o[0].verdict() != want {
			t.Errorf("tick %d: %+v, want %q once", tick, o, want)
		}
	}
	t.Logf("%d ticks, %d runs", last.Tick-first.Tick+1, len(starts(lines)))
}
