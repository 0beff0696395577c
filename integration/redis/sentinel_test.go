package redis

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// everyTick are short jobs whose ticks may be late, and a long one whose lease outlasts a failover.
const everyTick = `
[history]
runs = 1000

[defaults]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
start_deadline = "30s"
lease = "4s"

[jobs.a]
[jobs.b]

[jobs.long]
schedule = "*/5 * * * * *"
command = 'exec "$SCRIBE" -for 3s -beat 20ms'
lease = "20s"
`

// A Sentinel failover loses no tick: those that wait for the new master run once and in order (P1, P3, P4, P5).
// Tokens go on growing, and the runs under way are not disturbed.
// Promise: P1, P3, P4, P5
func TestSentinelFailover(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := harness.StartTrio(t, nil)
	c := harness.NewClusterAt(t, s.URL, everyTick)
	replicas := c.StartAll(t, 5)
	if e := replicas[0].WaitLog(t, harness.Soon, "announcement", harness.Announced); e["redis"] != s.URL+"/0" {
		t.Errorf("announced %v, want %s", e["redis"], s.URL+"/0")
	}
	first := max(c.AwaitTick(t, harness.Soon, "a", 0).Tick, c.AwaitTick(t, harness.Soon, "b", 0).Tick)
	c.AwaitTick(t, harness.Soon, "a", first+2)
	run := c.AwaitTick(t, harness.Soon, "long", first)
	c.Await(t, harness.Soon, "long", "beat", func(l harness.Line) bool { return l.Event == "beat" && l.RunID == run.RunID })

	old := s.Servers[0]
	old.Kill()
	killed := harness.RedisTime(t, c.Client)
	now := s.AwaitFailover(t, old.Instance.Addr())
	back := harness.RedisTime(t, c.Client)
	old.Start(harness.MemoryKept) // as a master, until the Sentinels reconfigure it
	last := back.Unix() + 4
	for _, job := range []string{"a", "b"} {
		c.AwaitTick(t, harness.StartTimeout, job, last)
	}
	c.AwaitTick(t, harness.StartTimeout, "long", last)
	c.Await(t, harness.Soon, "long", "end", func(l harness.Line) bool { return l.Event == "end" && l.RunID == run.RunID })
	c.Status(t) // finds the new master too
	checkNothingLost(t, c, []string{"a", "b"}, first, last, killed)
	harness.StopAll(t, replicas)

	runs := harness.Starts(c.Lines(t, ""))
	harness.CheckOnce(t, runs, 1)
	harness.CheckNotEarly(t, runs)
	c.CheckTokensGrow(t, runs)
	harness.CheckAlone(t, c.Lines(t, "long"))
	t.Logf("no master for %v, now %s; %d runs", back.Sub(killed).Round(time.Millisecond), now.Instance.Addr(), len(runs))
}

// checkNothingLost demands that each tick of short jobs ran, in order, and that the history says so. Excused are
//   - a tick that found a run in its slot: a slow one, or one of those that had waited for the return; or one
//     that was due when the server was gone and took its release with it, so that its slot is free only at the
//     end of its lease;
//   - the outcome in the history of a tick that was due when the server was gone, for the same reason.
//
// Ticks that were due while no master could grant them all ran: waiting ticks do not skip each other.
func checkNothingLost(t *testing.T, c *harness.Cluster, jobs []string, first, last int64, gone time.Time) {
	t.Helper()
	for _, job := range jobs {
		history := c.History(t, job)
		outcomes := harness.OutcomesOf(history)
		mine, skips := harness.Starts(c.Lines(t, job)), int64(0)
		for tick := first; tick <= last; tick++ {
			ran := slices.ContainsFunc(mine, func(l harness.Line) bool { return l.Tick == tick })
			o := outcomes[tick]
			after := tick - gone.Unix()
			skipped := len(o) == 1 && o[0].Verdict() == "skipped overlap" && !ran && after != 1
			told := len(o) == 1 && (o[0].Outcome == "ok" || o[0].Outcome == "running" && tick >= last-1)
			atRisk := after >= -2 && after <= 0
			if !(skipped && (after >= -1 || heldBy(history, tick))) && !(ran && (told || atRisk)) && !(atRisk && wasLost(o)) {
				t.Errorf("job %s, tick %d (%ds after the loss): ran %v, outcomes %+v", job, tick, after, ran, o)
			}
			if skipped {
				skips++
			}
		}
		if skips > (last-first+1)*3/4 { // on a slow machine a run often lasts longer than a second
			t.Errorf("job %s: %d of %d ticks were skipped", job, skips, last-first+1)
		}
		if !slices.IsSortedFunc(mine, func(a, b harness.Line) int { return int(a.Tick - b.Tick) }) {
			t.Errorf("ticks ran out of order:\n%s", harness.TextOf(mine))
		}
	}
}

var masterKills = flag.Int("master-kills", 3, "how many masters TestMastersAreKilledOneAfterTheOther kills")

// With an acknowledged replica no kill of a master loses a tick that no replica has started, though many a grant is not heard of (P5).
// Promise: P1, P3, P4, P5
func TestMastersAreKilledOneAfterTheOther(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := harness.StartTrio(t, nil)
	c := harness.NewClusterAt(t, s.URL, "[redis]\nacked_replicas = 1\n[history]\nruns = 1000\n"+shortJobs)
	replicas := c.StartAll(t, 3)
	jobs := []string{"a", "b"}
	first := max(c.AwaitTick(t, harness.Soon, "a", 0).Tick, c.AwaitTick(t, harness.Soon, "b", 0).Tick)
	var kills []time.Time
	master, random := s.Servers[0], harness.NewRandom(t)
	for range *masterKills {
		old := master
		due := harness.RedisTime(t, c.Client).Truncate(time.Second).Add(2 * time.Second)
		harness.AwaitTime(t, c.Client, due.Add(time.Duration(random.IntN(30))*time.Millisecond)) // while the claims are under way
		old.Kill()
		killed := harness.RedisTime(t, c.Client)
		kills = append(kills, killed)
		master = s.AwaitFailover(t, old.Instance.Addr())
		old.Start(harness.MemoryKept)
		harness.Eventually(t, harness.StartTimeout, "two replicas that follow", func() bool { return harness.TwoFollow(t, master) })
		back := harness.RedisTime(t, c.Client).Unix()
		for _, job := range jobs {
			c.AwaitTick(t, harness.StartTimeout, job, back+3)
		}
	}
	last := harness.RedisTime(t, c.Client).Unix() - 3
	harness.StopAll(t, replicas)

	runs := harness.Starts(c.Lines(t, ""))
	harness.CheckOnce(t, runs, 1)
	harness.CheckNotEarly(t, runs)
	c.CheckTokensGrow(t, runs)
	near := func(tick, after int64) bool { // a kill
		return slices.ContainsFunc(kills, func(k time.Time) bool { return tick >= k.Unix()-2 && tick <= k.Unix()+after })
	}
	const leaseOfAKilledRelease = 10 // seconds, with the failover: a slot whose release was lost is free at the end of its lease
	skips := 0
	for _, job := range jobs {
		history := c.History(t, job)
		outcomes := harness.OutcomesOf(history)
		mine := harness.Starts(c.Lines(t, job))
		for tick := first; tick <= last; tick++ {
			ran := slices.ContainsFunc(mine, func(l harness.Line) bool { return l.Tick == tick })
			o := outcomes[tick]
			skipped := len(o) == 1 && o[0].Verdict() == "skipped overlap"
			switch {
			case ran && (len(o) == 1 && o[0].Outcome == "ok" || near(tick, 1)), wasLost(o) && near(tick, 1):
			case skipped && (near(tick, leaseOfAKilledRelease) || heldBy(history, tick)):
				skips++
			default:
				t.Errorf("job %s, tick %d: ran %t, outcomes %+v", job, tick, ran, o)
			}
		}
	}
	t.Logf("%d kills, %d ticks, %d skipped since another held the slot, %d claimed anew", len(kills), 2*(last-first+1), skips, len(c.ClaimedAnew()))
}

// shortJobs are jobs whose ticks may be late, with a lease that outlasts no failover.
const shortJobs = `
[defaults]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
start_deadline = "1m"
lease = "3s"

[jobs.a]
[jobs.b]
`

// wasLost returns whether a run began and lost its lease. On a slow machine it may be stopped before its program writes a line.
func wasLost(outcomes []harness.PastRun) bool {
	return len(outcomes) == 1 && outcomes[0].Outcome == "lost" && !outcomes[0].Started.IsZero()
}

// heldBy returns whether a run of an earlier tick was about in the slot of a job when a tick was due.
func heldBy(history []harness.PastRun, tick int64) bool {
	const margin = 2 * time.Second // a claim or a release takes less on a slow machine
	at := time.Unix(tick, 0)
	return slices.ContainsFunc(history, func(o harness.PastRun) bool {
		return o.Tick.Before(at) && !o.Started.IsZero() && !at.Before(o.Started.Add(-margin)) && (o.Finished.IsZero() || !at.After(o.Finished.Add(margin)))
	})
}
