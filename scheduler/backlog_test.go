package scheduler_test

import (
	"cmp"
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
