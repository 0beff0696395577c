package scheduler_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/scheduler"
)

// checkAttempts demands that no two tries of a tick have the same number, neither in the runs (P1) nor in the records (P6).
func (c *cluster) checkAttempts(job string, perTick int) {
	c.t.Helper()
	began, told := map[string][]string{}, map[string][]string{}
	for _, r := range c.runs(job) {
		if r.Trigger != "manual" {
			k := fmt.Sprintf("attempt %d of %s %d", r.Attempt, job, c.second(r.Tick))
			began[k] = append(began[k], r.Replica+" "+r.ID)
		}
	}
	for id, r := range c.words(job) {
		if r.Trigger != "manual" && r.Attempt > 0 {
			k := fmt.Sprintf("attempt %d of %s %d", r.Attempt, job, c.second(r.Tick))
			told[k] = append(told[k], r.Replica+" "+id+" "+verdict(r))
		}
	}
	for k, all := range began {
		if len(all) > perTick {
			c.t.Errorf("P1: %s began %d times: %q", k, len(all), all)
		}
	}
	for k, all := range told {
		if len(all) > perTick {
			c.t.Errorf("P6: %s is told of %d times: %q", k, len(all), all)
		}
	}
}

// attempts are the numbers of all tries that began, with the replica of each.
func (c *cluster) attempts(job string) []string {
	var all []string
	for _, r := range c.runs(job) {
		all = append(all, fmt.Sprint(r.Attempt, " on ", r.Replica))
	}
	return all
}

// loseReplies lets requests arrive, and no replies.
func loseReplies(w *wire) { w.plan(slices.Repeat([]fault{{kind: noReply}}, 1000)...) }

// A holder that is cut off when its first try has failed begins no other one before the cluster has acknowledged that number, so a recovery on another
// replica uses no number twice.
// Promise: P6
func TestTryWaitsForItsNumber(t *testing.T) {
	const length = 9 * time.Second // of the lease, which has been renewed once before the cut
	for _, tc := range []struct {
		name     string
		cut      func(w *wire)
		restored time.Duration
		attempts []string
		told     []string
	}{
		{"no request arrives", (*wire).silence, time.Hour, []string{"1 on holder", "2 on other", "3 on other"},
			[]string{"1 schedule lost", "2 recovery failed try 2", "3 recovery ok"}},
		{"it is refused", (*wire).refuse, time.Hour, []string{"1 on holder", "2 on other", "3 on other"},
			[]string{"1 schedule lost", "2 recovery failed try 2", "3 recovery ok"}},
		{"no reply arrives, so the number is used up", loseReplies, time.Hour, []string{"1 on holder", "3 on other"},
			[]string{"1 schedule lost", "3 recovery ok"}},
		{"for a while", (*wire).silence, 39 * time.Second, []string{"1 on holder", "2 on holder", "3 on holder"},
			[]string{"1 schedule failed try 1", "2 schedule failed try 2", "3 schedule ok"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "30 0 0 * * *", 0, c.failing(2, 4*time.Second, false), retry(3, time.Second, time.Second), recovers(3), lease(length))}
				holder := c.join("holder", jobs)
				c.at(33500 * time.Millisecond)
				c.join("other", jobs)
				tc.cut(&holder.wire)
				if tc.restored < time.Hour {
					c.at(tc.restored - time.Millisecond)
					want(t, "tries before the number is acknowledged", c.attempts("j"), []string{"1 on holder"})
					holder.wire.restore()
				}
				c.at(2 * time.Minute)
				want(t, "tries", c.attempts("j"), tc.attempts)
				want(t, "told", c.attemptsOf("j", 30), tc.told)
				c.checkAttempts("j", 1)
			})
		})
	}
}

// A stop of the run interrupts its wait for an attempt number at once.
func TestWaitForANumberIsInterrupted(t *testing.T) {
	for _, tc := range []struct {
		name      string
		interrupt func(t *testing.T, holder, other *replica) // at 31s, in the wait
		by        time.Duration                              // when the run is over on the holder
		told      string
	}{
		{"by a drain", func(_ *testing.T, holder, _ *replica) { holder.stop() }, 33100 * time.Millisecond, "1 schedule failed try 1"},
		{"by an abort", func(_ *testing.T, holder, _ *replica) { holder.Abort() }, 33100 * time.Millisecond, "1 schedule failed try 1"},
		{"by a stop that the acknowledgement brings", func(_ *testing.T, holder, other *replica) {
			other.cancel("j", "")
			holder.wire.restore()
		}, 33 * time.Second, "1 schedule canceled user"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "30 0 0 * * *", 0, c.failing(9, 0, false), retry(3, 500*time.Millisecond, 500*time.Millisecond), lease(30*time.Second))}
				holder := c.join("holder", jobs)
				c.at(30200 * time.Millisecond)
				other := c.join("other", jobs)
				holder.wire.silence()
				c.at(31 * time.Second)
				want(t, "running in the wait", holder.Running(), 1)
				tc.interrupt(t, holder, other)
				c.at(tc.by)
				want(t, "running", holder.Running(), 0)
				want(t, "tries", c.attempts("j"), []string{"1 on holder"})
				c.at(2 * time.Minute)
				want(t, "tries", c.attempts("j"), []string{"1 on holder"})
				want(t, "told", c.attemptsOf("j", 30), []string{tc.told})
			})
		})
	}
}
