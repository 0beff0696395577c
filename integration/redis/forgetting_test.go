package redis

import (
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// backlog has ticks that wait up to half a minute for their Redis, and find another in their slot when it is back.
const backlog = `
[history]
runs = 1000

[defaults]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 200ms'
start_deadline = "30s"
lease = "3s"

[jobs.a]
[jobs.b]
`

// killed is how long Redis is away in the tests that kill it.
const killed = 6 * time.Second

// outage is an outage of the Redis of these jobs. The ticks from the first to the last are judged.
type outage struct {
	*harness.Cluster
	down, back  int64     // between these seconds Redis was away
	started     time.Time // not after it was back
	first, last int64
	replicas    []*harness.Replica
}

// killRedis kills the Redis of five replicas, and starts it again; it returns when they are up to date.
func killRedis(t *testing.T, s *harness.RedisServer, m harness.Memory) *outage {
	t.Helper()
	c := harness.NewClusterOn(t, s, backlog)
	o := &outage{Cluster: c, replicas: c.StartAll(t, 5)}
	o.first = max(c.AwaitTick(t, harness.Soon, "a", 0).Tick, c.AwaitTick(t, harness.Soon, "b", 0).Tick)
	c.AwaitTick(t, harness.Soon, "a", o.first+2)
	s.Kill()
	down := time.Now() // its clock is this machine's
	for _, r := range o.replicas {
		r.WaitLog(t, killed+harness.Soon, "warning that Redis is away", harness.MessageHas("does not answer"))
	}
	harness.Eventually(t, killed+harness.Soon, "end of the outage", func() bool { return time.Since(down) > killed })
	o.started = time.Now()
	s.Start(m)
	o.down, o.back = down.Unix(), harness.RedisTime(t, c.Client).Unix()
	o.last = o.back + 5
	for _, job := range []string{"a", "b"} {
		c.AwaitTick(t, 2*harness.Soon, job, o.last)
	}
	return o
}

// checkTicks demands that all ticks ran, once and in their order, and that the history has one outcome for each since
// an instant. A tick that came due before the kill, or after the return, did not wait for the server: it may find another
// run in its slot, such as one of the backlog.
func (o *outage) checkTicks(t *testing.T, since int64) {
	t.Helper()
	runs := harness.Starts(o.Lines(t, ""))
	harness.CheckOnce(t, runs, 1)
	harness.CheckNotEarly(t, runs)
	o.CheckTokensGrow(t, runs)
	for _, job := range []string{"a", "b"} {
		lines := o.Lines(t, job)
		mine := harness.Starts(lines)
		if !slices.IsSortedFunc(mine, func(a, b harness.Line) int { return int(a.Tick - b.Tick) }) {
			t.Errorf("ticks ran out of order:\n%s", harness.TextOf(mine))
		}
		outcomes := harness.OutcomesOf(o.History(t, job))
		for tick := o.first; tick <= o.last; tick++ {
			ran := slices.ContainsFunc(mine, func(l harness.Line) bool { return l.Tick == tick })
			past := outcomes[tick]
			one := len(past) == 1
			there := tick <= o.down && o.ranUntil(lines, tick) || !time.Unix(tick, 0).Before(o.started)
			lost := len(past) == 0 && tick < since
			overlap := there && (lost || one && past[0].Verdict() == "skipped overlap")
			// A run that was on in the moment of the kill could not be renewed, or not be released.
			cut := one && tick >= o.down-1 && tick <= o.down && past[0].Replica != "" && past[0].Outcome != "missed"
			told := one && past[0].Outcome == "ok" || cut || tick < since
			if ran && !told || !ran && !overlap {
				t.Errorf("job %s, tick %d (%ds after the kill, %ds after the return): ran %v, outcomes %+v", job, tick, tick-o.down, tick-o.back, ran, past)
			}
		}
	}
	t.Logf("away for %ds; lateness: %s", o.back-o.down, harness.Lateness(runs))
}

// ranUntil reports whether a run of an earlier tick may have held the slot when a tick was decided before the kill: it had
// begun by then, and had not ended when the tick came due, or so shortly before that its slot may not have been free yet.
func (o *outage) ranUntil(lines []harness.Line, tick int64) bool {
	const release = 300 * time.Millisecond
	due, kill := time.Unix(tick, 0), time.Unix(o.down+1, 0)
	return slices.ContainsFunc(harness.Starts(lines), func(run harness.Line) bool {
		over := slices.ContainsFunc(harness.LinesOf("end", harness.RunLines(run.RunID, lines)), func(l harness.Line) bool {
			return l.Micros != 0 && l.At().Before(due.Add(-release))
		})
		return run.Tick < tick && run.At().Before(kill) && !over
	})
}

// A Redis that writes everything to its disk and is killed costs no tick (P1, P2, P4, P5, P6).
// Promise: P1, P5
func TestRedisKilledWithItsMemoryKept(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	o := killRedis(t, harness.StartRedis(t, harness.RedisOpts{Persist: true}), harness.MemoryKept)
	harness.StopAll(t, o.replicas)
	o.checkTicks(t, o.first)
}

// A Redis that is killed and keeps nothing costs no tick while replicas live that know it (P1, P2, P3, P4, P5). The
// replicas restore the decisions and tokens, and leave each lock closed for one lease. In the end no replica knows
// them any more; tokens grow all the same.
// Promise: P1, P4, P5
func TestRedisKilledWithItsMemoryLost(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const lease = 3 * time.Second
	s := harness.StartRedis(t, harness.RedisOpts{})
	o := killRedis(t, s, harness.MemoryLost)
	harness.StopAll(t, o.replicas)
	o.checkTicks(t, o.down+1) // the history before it is lost
	runs := harness.Starts(o.Lines(t, ""))
	back := slices.IndexFunc(runs, func(l harness.Line) bool { return l.Tick > o.down && l.At().After(o.started) })
	if early := runs[back].At().Sub(o.started); early < lease {
		t.Errorf("a lock of which Redis had forgotten all was open %v after its return, with leases of %v: %v", early, lease, runs[back])
	}

	if err := s.Client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	fresh := o.Start(t, "fresh")
	for _, job := range []string{"a", "b"} {
		o.Await(t, harness.Soon, job, "run on the fresh replica", func(l harness.Line) bool { return l.Replica == fresh.Name })
	}
	harness.StopAll(t, []*harness.Replica{fresh})
	o.CheckTokensGrow(t, harness.Starts(o.Lines(t, "")))
}

// A Redis that loses its data just before a tick lets no tick run twice (P1). The test empties it five times, each
// time while runs are on that last longer than the lock of their job stays closed. There are never more runs than
// slots (P3), no run is stopped because its lease could not be renewed, and the tokens grow (P4).
// Promise: P1, P3, P4
func TestRedisForgetsJustBeforeATick(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const times, short = 5, 100 * time.Millisecond
	s := harness.StartRedis(t, harness.RedisOpts{})
	c := harness.NewClusterOn(t, s, `
[defaults]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 6s'
lease = "3s"

[jobs.one]
[jobs.two]
parallel = 2
per_tick = 1
[jobs.quick]
command = 'exec "$SCRIBE"'
start_deadline = "20s"
`)
	parallel := map[string]int{"one": 1, "two": 2, "quick": 1}
	replicas := c.StartAll(t, 5)
	var last harness.Line
	for range times {
		last = c.Await(t, 2*harness.Soon, "one", "next run", func(l harness.Line) bool { return l.Event == "start" && l.Token > last.Token })
		harness.Eventually(t, 2*harness.Soon, "two runs at once", func() bool {
			lines := c.Lines(t, "two")
			ended := harness.LinesOf("end", lines)
			return len(harness.Starts(lines))-len(ended) == 2
		})
		now := harness.RedisTime(t, c.Client)
		harness.AwaitTime(t, c.Client, now.Truncate(time.Second).Add(2*time.Second-short))
		if err := s.Client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	again := c.Await(t, 2*harness.Soon, "one", "run after all this", func(l harness.Line) bool { return l.Event == "start" && l.Token > last.Token })
	c.AwaitTick(t, harness.Soon, "quick", again.Tick)
	harness.StopAll(t, replicas)

	for job, n := range parallel {
		lines := c.Lines(t, job)
		runs := harness.Starts(lines)
		harness.CheckOnce(t, runs, 1)
		harness.CheckNotEarly(t, runs)
		c.CheckTokensGrow(t, runs)
		harness.CheckAtMost(t, lines, n)
		for _, l := range runs {
			if job != "quick" && len(harness.LinesOf("end", harness.RunLines(l.RunID, lines))) == 0 {
				t.Errorf("a run did not come to its end: %v", l)
			}
		}
		t.Logf("job %s: %d runs", job, len(runs))
	}
}

// A lock is known again after a loss of Redis' data although no tick is due for long. The replicas notice that they
// are no longer registered, and announce all jobs. Until then a client that never knew the lock may take it; from
// then on the lock is closed to it for one lease.
// Promise: P3
func TestForgottenLockIsKnownAgainWithoutATick(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := harness.StartRedis(t, harness.RedisOpts{})
	c := harness.NewClusterOn(t, s, `
[jobs.rare]
schedule = "0 0 29 2 *"
command = ["true"]
lease = "5m"
`)
	c.Command(t, "exec", "rare").Want(t, 0, "")
	replicas := c.StartAll(t, 2)
	harness.Eventually(t, harness.Soon, "replicas in status", func() bool { return len(c.Status(t).Replicas) == len(replicas) })
	harness.Eventually(t, harness.Soon, "leader", func() bool { return c.Status(t).Leader != nil }) // the leader inspects all jobs once a minute

	if err := s.Client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	const registerEvery = 5 * time.Second
	harness.Eventually(t, registerEvery+harness.Soon, "lock of the job", func() bool {
		keys, err := s.Client.Keys(t.Context(), "cronclave:it:{rare}:job*").Result()
		return err == nil && len(keys) > 0
	})
	c.Command(t, "exec", "rare").Want(t, 75, "Redis lost the lock's data")
	harness.Eventually(t, harness.Soon, "jobs in status", func() bool { return len(c.Status(t).Jobs) == 1 })
	harness.StopAll(t, replicas)
}
