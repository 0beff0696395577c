package scheduler_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/scheduler"
)

func queued(j *scheduler.Job) { j.Overlap = scheduler.OverlapQueue }

// TestOverlapQueue runs a job every ten seconds for a minute: the first tick that finds all slots held waits for one, those behind it are skipped.
// Promise: P9
func TestOverlapQueue(t *testing.T) {
	for _, tc := range []struct {
		name     string
		replicas int
		length   time.Duration
		edits    []edit
		ran      []int
		told     map[int][]string
	}{
		{"one slot", 3, 16 * time.Second, nil, []int{10, 20, 30, 50}, map[int][]string{
			10: {"ok"}, 20: {"ok"}, 30: {"ok"}, 40: {"skipped overlap"}, 50: {"ok"}}},
		{"one slot on one replica", 1, 16 * time.Second, nil, []int{10, 20, 30, 50}, map[int][]string{
			10: {"ok"}, 20: {"ok"}, 30: {"ok"}, 40: {"skipped overlap"}, 50: {"ok"}}},
		{"those behind it are skipped", 3, 34 * time.Second, nil, []int{10, 20, 50}, map[int][]string{
			10: {"ok"}, 20: {"ok"}, 30: {"skipped overlap"}, 40: {"skipped overlap"}, 50: {"ok"}}},
		{"two slots", 3, 24 * time.Second, []edit{parallel(2, 1, 1)}, []int{10, 20, 30, 40, 50}, map[int][]string{
			10: {"ok"}, 20: {"ok"}, 30: {"ok"}, 40: {"ok"}, 50: {"ok"}}},
		{"its own deadline", 3, 34 * time.Second, []edit{startDeadline(15 * time.Second)}, []int{10, 40}, map[int][]string{
			10: {"ok"}, 20: {"missed slots"}, 30: {"skipped overlap"}, 40: {"ok"}, 50: {"missed slots"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				job := c.job("j", "*/10 0 * * * *", tc.length, append(tc.edits, queued)...)
				c.joinAll(tc.replicas, []scheduler.Job{job})
				c.at(2*time.Minute + 30*time.Second)
				want(t, "ticks that ran", c.ticks("j"), tc.ran)
				want(t, "what was told", c.told("j"), tc.told)
				c.checkRuns("j", max(job.Parallel, 1), 1)
			})
		})
	}
}

// A queued tick is run when the lease of a replica that died is over.
// Promise: P5
func TestQueuedTickOutlivesTheHolder(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.joinAll(3, []scheduler.Job{c.job("j", "*/10 0 * * * *", 25*time.Second, queued, lease(25*time.Second))})
		c.at(15 * time.Second)
		for _, r := range c.replicas {
			if r.name == c.runs("j")[0].Replica {
				r.die()
			}
		}
		c.at(34 * time.Second)
		want(t, "ticks that ran", c.ticks("j"), []int{10})
		c.at(45 * time.Second)
		want(t, "ticks that ran", c.ticks("j"), []int{10, 20})
		want(t, "what was told", c.told("j")[30], []string{"skipped overlap"})
	})
}

// A queued tick starts as soon as the slot is free: the replica that ran the tick before publishes that, as the others ask seldom after a long wait. When
// that event gets lost, the tick starts a few seconds later.
// Promise: P5
func TestQueuedTickStartsWhenTheSlotIsFree(t *testing.T) {
	testtier.Slow(t)
	for _, tc := range []struct {
		name  string
		deaf  bool
		most  time.Duration
		asked int
	}{
		{"told", false, 50 * time.Millisecond, 3000},
		{"nobody hears it", true, 4 * time.Second, 3000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				all := c.joinAll(3, []scheduler.Job{c.job("j", "*/10 * * * *", 30*time.Minute+time.Second, queued)}, func(cfg *scheduler.Config) {
					cfg.Ready = func() bool { // each replica runs it once, and knows nothing of the others' slots by itself
						return !slices.ContainsFunc(c.runs("j"), func(r ran) bool { return r.Replica == cfg.Replica })
					}
					if tc.deaf {
						cfg.GrantEvents = deaf{cfg.GrantEvents}
					}
				})
				c.at(81 * time.Minute)
				runs, asked := c.runs("j"), 0
				for i := 1; i < len(runs); i++ {
					if late := runs[i].from.Sub(runs[i-1].to); late > tc.most {
						t.Errorf("run %d began %v after the end of the one before", i, late)
					}
				}
				for _, r := range all {
					asked += len(r.claims(c.start))
				}
				if len(runs) != 3 || asked > tc.asked {
					t.Errorf("%d runs, %d claims", len(runs), asked)
				}
			})
		})
	}
}

// deaf hears nothing.
type deaf struct{ scheduler.GrantEvents }

func (deaf) Subscribe(ctx context.Context, _ func([]election.GrantEvent)) { <-ctx.Done() }

// A waiting tick hears of the end of any run that held the slot, be it one that was requested, or one of a replica that drains.
// Promise: P5
func TestWaitingTickHearsOfTheEnd(t *testing.T) {
	for _, tc := range []struct {
		name     string
		schedule string
		drains   bool
	}{
		{"a request", "40 0 0 * * *", false},
		{"a drain", "5,40 0 0 * * *", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				b := c.board()
				jobs := []scheduler.Job{c.job("j", tc.schedule, 5*time.Minute+2*time.Second, queued, c.slowAt(time.Second, 40))}
				holder := c.join("holder", jobs, b.serve, drainTimeout(10*time.Minute), func(cfg *scheduler.Config) {
					cfg.Ready = func() bool { return len(c.runs("j")) == 0 } // and takes no other
				})
				c.at(time.Second)
				if !tc.drains {
					b.ask("q", "j")
				}
				c.at(10 * time.Second)
				c.join("other", jobs)
				if tc.drains {
					c.at(200 * time.Second)
					holder.stop()
				}
				c.at(6 * time.Minute)
				runs := c.runs("j")
				if len(runs) != 2 || runs[1].from.Sub(runs[0].to) > 20*time.Millisecond {
					t.Errorf("%+v", runs)
				}
			})
		})
	}
}

// Without events, a replica keeps nothing for their receivers.
// Promise: P9
func TestWithoutEvents(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("queued", "* * * * * *", 10*time.Millisecond, queued), c.job("replaced", "* * * * * *", 10*time.Millisecond, replaces),
			c.job("a", "* * * * * *", 10*time.Millisecond), c.job("b", "", 10*time.Millisecond, after("a"))}
		r := c.join("r", jobs, func(cfg *scheduler.Config) {
			cfg.GrantEvents, cfg.Pools, cfg.Journal, cfg.Requests = nil, nil, nil, nil
		})
		c.at(30500 * time.Millisecond)
		r.leave() // and there are no leftovers
		for _, j := range jobs {
			if n := len(c.runs(j.Name)); n < 28 && j.Name != "b" {
				t.Errorf("%d runs of %s", n, j.Name)
			}
		}
	})
}
