package scheduler_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/scheduler"
)

// A backlog comes to an end although runs last longer than the period: the ticks of an outage are granted, the oldest first, and ticks that come due
// behind them, when the server answers again, are skipped while all slots are held.
// Promise: P5
func TestBacklogComesToAnEnd(t *testing.T) {
	testtier.Slow(t)
	for _, tc := range []struct {
		replicas, parallel, perReplica int
		length                         time.Duration
	}{
		{1, 1, 1, 1500 * time.Millisecond},
		{3, 1, 1, 1500 * time.Millisecond},
		{1, 2, 2, 2500 * time.Millisecond},
		{3, 2, 2, 2500 * time.Millisecond},
		{3, 4, 2, 4700 * time.Millisecond},
		{3, 2, 1, 2500 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%d replicas, parallel %d", tc.replicas, tc.parallel), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.quiet = true
				c.joinAll(tc.replicas, []scheduler.Job{c.job("j", "* * * * * *", tc.length, startDeadline(time.Minute),
					parallel(tc.parallel, 1, tc.perReplica))})
				c.away(10500*time.Millisecond, 16500*time.Millisecond, (*wire).refuse)
				c.at(5*time.Minute + 900*time.Millisecond)
				c.checkDrained("j", 16, 5*60)
				c.checkRuns("j", tc.parallel, 1)
				if ticks := c.granted("j"); !slices.IsSorted(ticks) {
					t.Errorf("ticks in the order of their grants: %v", ticks)
				}
			})
		})
	}
}

// Ticks of a backlog that wait for a slot let each other go first, and ticks of other jobs run meanwhile, on a replica that has place for one.
// Promise: P5
func TestBacklogTakesNoPlaceFromOthers(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond, parallel(2, 1, 2), startDeadline(time.Minute)),
			c.job("m", "* * * * * *", 200*time.Millisecond, startDeadline(time.Minute)),
			c.job("n", "* * * * * *", 200*time.Millisecond, startDeadline(time.Minute))}
		r := c.join("r", jobs, func(cfg *scheduler.Config) { cfg.MaxRunning = 1 })
		other := c.replica("other", jobs)
		c.at(10500 * time.Millisecond)
		r.wire.refuse()
		c.at(16200 * time.Millisecond)
		holders := []*election.Term{other.take("j", "one", 2), other.take("j", "two", 2)}
		c.at(16500 * time.Millisecond)
		r.wire.restore()
		c.at(40*time.Second + 900*time.Millisecond)
		for _, one := range []string{"m", "n"} {
			ticks := slices.DeleteFunc(c.ticks(one), func(s int) bool { return s <= 30 }) // when their own backlog is gone
			want(t, "ticks of "+one+", which needs no slot of j", ticks, seconds(31, 40, 1))
		}
		for _, one := range holders {
			if err := one.End(t.Context()); err != nil {
				t.Error(err)
			}
		}
		c.at(50*time.Second + 900*time.Millisecond)
		if ticks := c.granted("j"); !slices.IsSorted(ticks) {
			t.Errorf("ticks in the order of their grants: %v", ticks)
		}
		want(t, "told of the last tick", c.told("j")[50], []string{"ok"})
	})
}

// granted returns which ticks of a job were granted, as seconds of the test, in that order.
func (c *cluster) granted(job string) (ticks []int) {
	for _, r := range slices.SortedFunc(slices.Values(c.runs(job)), func(a, b ran) int { return cmp.Compare(a.Token, b.Token) }) {
		ticks = append(ticks, c.second(r.Tick))
	}
	return ticks
}

// checkDrained holds that the ticks from second 11 to last ran, that all others ran or were skipped, and that at the end ticks
// are on time.
func (c *cluster) checkDrained(job string, last, end int) {
	c.t.Helper()
	ticks, told := c.ticks(job), c.told(job)
	for s := 1; s <= end; s++ {
		outcome := "none"
		if len(told[s]) == 1 {
			outcome = told[s][0]
		}
		switch {
		case slices.Contains(ticks, s) && (outcome == "ok" || outcome == "running"):
		case outcome == "skipped overlap" && (s < 11 || s > last):
		default:
			c.t.Errorf("tick %d: %v", s, told[s])
		}
	}
	for _, r := range c.runs(job) {
		if late := r.from.Sub(r.Tick); c.second(r.Tick) > end-60 && late > 300*time.Millisecond {
			c.t.Errorf("the backlog is still there: tick %d began %v late", c.second(r.Tick), late)
		}
	}
}

// A tick behind a backlog waits, and does not pass it, though it is the first to be claimed when a slot is free again.
// Promise: P5
func TestTickBehindABacklogDoesNotPassIt(t *testing.T) {
	for _, before := range []time.Duration{5, 45, 95, 145, 195, 245} {
		t.Run(fmt.Sprintf("free %d ms before the tick", before), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond, startDeadline(30*time.Second))}
				r, other := c.join("r", jobs), c.replica("other", jobs) // which does not run
				c.at(10500 * time.Millisecond)
				r.wire.refuse()
				c.at(16200 * time.Millisecond)
				holder := other.hold("j")
				c.at(16500 * time.Millisecond)
				r.wire.restore()
				c.at(22*time.Second - before*time.Millisecond)
				if err := holder.End(t.Context()); err != nil {
					t.Error(err)
				}
				c.at(30*time.Second + 900*time.Millisecond)
				told := c.told("j")
				for s := 19; s <= 21; s++ { // they came due while another held the slot, and the server answered
					want(t, fmt.Sprint("told of ", s), told[s], []string{"skipped overlap"})
				}
				ticks := c.ticks("j")
				expected := slices.DeleteFunc(seconds(1, 30, 1), func(s int) bool {
					// 17 and 18 came due maybe before it was known that the server answers, 22 when maybe the backlog ran already.
					maybe := s == 17 || s == 18 || s == 22
					return len(told[s]) == 1 && told[s][0] == "skipped overlap" && (maybe || s >= 19 && s <= 21)
				})
				want(t, "ticks in the order of their starts", ticks, expected)
			})
		})
	}
}

// A tick behind a backlog is not skipped if a slot is free and only the one replica has no place.
// Promise: P5
func TestTickBehindABacklogWaitsForAFreeSlot(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.join("r", []scheduler.Job{c.job("j", "* * * * * *", 700*time.Millisecond, parallel(2, 1, 1), startDeadline(time.Minute))})
		c.away(10800*time.Millisecond, 16500*time.Millisecond, (*wire).refuse)
		c.at(60*time.Second + 900*time.Millisecond)
		want(t, "ticks in the order of their starts", c.ticks("j"), seconds(1, 60, 1))
		c.checkRuns("j", 2, 1)
	})
}

// Ticks that wait behind the ticks of an outage, and are missed, have the outage as their reason. Ticks that wait when those are gone have another
// reason.
// Promise: P6
func TestReasonOfATickBehindABacklog(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.join("r", []scheduler.Job{c.job("j", "* * * * * *", time.Minute, parallel(2, 1, 1), startDeadline(5*time.Second))})
		c.at(500 * time.Millisecond)
		c.away(500*time.Millisecond, 6500*time.Millisecond, (*wire).refuse)
		c.at(50*time.Second + 900*time.Millisecond)
		told, ran := c.told("j"), c.ticks("j")
		for s := 1; s <= 45; s++ {
			switch {
			case slices.Contains(ran, s):
			case s <= 10:
				want(t, fmt.Sprint("told of ", s), told[s], []string{"missed redis"})
			case s >= 20:
				want(t, fmt.Sprint("told of ", s), told[s], []string{"missed capacity"})
			}
		}
	})
}

// TestBacklogThatFindsNoSlot: the ticks of an outage that are missed when the server has answered for long, since another holds the slot
// all the time, were missed for that.
// Promise: P6
func TestBacklogThatFindsNoSlot(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond, startDeadline(10*time.Second))}
		r, other := c.join("r", jobs), c.replica("other", jobs)
		c.at(10500 * time.Millisecond)
		r.wire.refuse()
		c.at(13200 * time.Millisecond)
		other.hold("j")
		c.at(16500 * time.Millisecond)
		r.wire.restore()
		c.at(40*time.Second + 900*time.Millisecond)
		for s := 11; s <= 16; s++ {
			want(t, fmt.Sprint("told of ", s), c.told("j")[s], []string{"missed slots"})
		}
		want(t, "told of 30", c.told("j")[30], []string{"skipped overlap"})
	})
}

// The server has skipped a tick behind a backlog, and its reply is lost: the replica asks again, before the backlog is gone.
func TestLostReplyOfASkipBehindABacklog(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond, startDeadline(30*time.Second))}
		r, other := c.join("r", jobs), c.replica("other", jobs)
		c.at(10500 * time.Millisecond)
		r.wire.refuse()
		c.at(16200 * time.Millisecond)
		holder := other.hold("j")
		c.at(16500 * time.Millisecond)
		r.wire.restore()
		c.at(20*time.Second - time.Microsecond)
		r.wire.plan(fault{kind: cutAtReply})
		c.at(23*time.Second - 500*time.Millisecond)
		if err := holder.End(t.Context()); err != nil {
			t.Error(err)
		}
		c.at(30*time.Second + 900*time.Millisecond)
		told := c.told("j")
		for s := 1; s <= 30; s++ {
			if len(told[s]) != 1 {
				t.Errorf("tick %d has the outcomes %v", s, told[s])
			}
		}
	})
}

// Ticks that are missed because a replica stands still have the reason overload, and those that are missed because the server is away the reason redis.
// Promise: P6
func TestOverloadIsNotBlamedOnTheServer(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.join("r", []scheduler.Job{c.job("j", "*/10 * * * * *", time.Millisecond, startDeadline(2*time.Second))}, c.stands(95*time.Second, 128*time.Second))
		c.at(195 * time.Second)
		c.away(195*time.Second, 228*time.Second, (*wire).refuse)
		c.at(300 * time.Second)
		told := c.told("j")
		for s, want := range map[int]string{90: "ok", 100: "missed overload", 110: "missed overload", 120: "missed overload", 130: "ok",
			190: "ok", 200: "missed redis", 210: "missed redis", 220: "missed redis", 230: "ok"} {
			if got := fmt.Sprint(told[s]); got != "["+want+"]" {
				t.Errorf("tick %d: %s, want %s", s, got, want)
			}
		}
	})
}

// slowClaimer takes a while for each batch.
type slowClaimer struct {
	scheduler.Claimer
	delay time.Duration
}

func (s slowClaimer) Claim(ctx context.Context, claims []election.Claim) []election.Result {
	results := s.Claimer.Claim(ctx, claims)
	pass(s.delay)
	return results
}

// A replica with more ticks than it can claim until their deadlines, at a server that answers, records the others as missed for overload.
// Promise: P6
func TestTooMuchToAsk(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.quiet = true
		var jobs []scheduler.Job
		for i := range 600 { // in three batches
			jobs = append(jobs, c.job(fmt.Sprintf("j%d", i), "30 * * * * *", time.Millisecond, startDeadline(time.Second)))
		}
		c.join("r", jobs, func(cfg *scheduler.Config) {
			cfg.MaxRunning = len(jobs)
			cfg.Claimer = slowClaimer{cfg.Claimer, 700 * time.Millisecond}
		})
		c.at(50 * time.Second)
		got := map[string]int{}
		for _, j := range jobs {
			for outcome, n := range c.outcomes(j.Name) {
				got[outcome] += n
			}
		}
		want(t, "outcomes", got, map[string]int{"ok": 500, "missed overload": 100})
	})
}

// A replica knows for how long its oldest tick has been due. Ticks that wait for the end of a run of their job are not late, and nothing is after a drain.
// Promise: P6
func TestLateness(t *testing.T) {
	inCluster(t, func(c *cluster) {
		queue := func(j *scheduler.Job) { j.Overlap, j.Jitter = scheduler.OverlapQueue, 0 }
		r := c.join("r", []scheduler.Job{c.job("j", "*/10 * * * * *", time.Second, startDeadline(time.Minute)), c.job("long", "*/10 * * * * *", 18*time.Second, queue)})
		lateness := func(want time.Duration) {
			t.Helper()
			if late, ok := r.Lateness(); !ok || (late-want).Abs() > 100*time.Millisecond {
				t.Errorf("after %v: late by %v, known %v; want %v", time.Since(c.start), late, ok, want)
			}
		}
		c.at(9 * time.Second)
		lateness(0)
		c.at(25 * time.Second) // the second run of long waits for the first
		lateness(0)
		c.away(29*time.Second, 38*time.Second, (*wire).refuse)
		c.at(38 * time.Second)
		lateness(8 * time.Second)
		c.at(46 * time.Second)
		lateness(0)
		r.leave()
		if late, ok := r.Lateness(); ok {
			t.Errorf("after the drain it is late by %v", late)
		}
	})
}
