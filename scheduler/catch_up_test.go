package scheduler_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/scheduler"
)

func catchUp(policy scheduler.CatchUpPolicy, window time.Duration) edit {
	return func(j *scheduler.Job) { j.CatchUp = scheduler.CatchUp{Policy: policy, Window: window} }
}

// triggers is why the ticks of a job ran, by the seconds of the test.
func (c *cluster) triggers(job string) map[int]string {
	all := map[int]string{}
	for _, r := range c.runs(job) {
		all[c.second(r.Tick)] = r.Trigger
	}
	return all
}

// catchUpCases are ticks of each minute, which may start for ten seconds. No replica decides those from 180 to 360, until 390.
var catchUpCases = []struct {
	name     string
	policy   scheduler.CatchUpPolicy
	window   time.Duration
	length   time.Duration
	ran      []int
	caught   []int
	outcomes map[string]int // GAP stands for the reason
}{
	{"none", scheduler.CatchUpNone, 0, time.Second, []int{60, 120, 420, 480}, nil, map[string]int{"ok": 4, "missed GAP": 4}},
	{"latest", scheduler.CatchUpLatest, 0, time.Second, []int{60, 120, 360, 420, 480}, []int{360}, map[string]int{"ok": 5, "missed GAP": 3}},
	{"all", scheduler.CatchUpAll, 0, time.Second, []int{60, 120, 180, 240, 300, 360, 420, 480}, []int{180, 240, 300, 360}, map[string]int{"ok": 8}},
	{"the window", scheduler.CatchUpAll, 2 * time.Minute, time.Second, []int{60, 120, 300, 360, 420, 480}, []int{300, 360}, map[string]int{"ok": 6, "missed GAP": 2}},
	{"the window of the latest", scheduler.CatchUpLatest, 20 * time.Second, time.Second, []int{60, 120, 420, 480}, nil, map[string]int{"ok": 4, "missed GAP": 4}},
	{"one after the other, and none passes them", scheduler.CatchUpAll, 0, 25 * time.Second, []int{60, 120, 180, 240, 300, 360}, []int{180, 240, 300, 360},
		map[string]int{"ok": 6, "skipped overlap": 2}},
}

// When all replicas come back, the ticks that are caught up run in the right order and with the right trigger, and each tick has one outcome.
// Promise: P5
func TestCatchUpAfterAllWereDown(t *testing.T) {
	for _, tc := range catchUpCases {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "* * * * *", tc.length, startDeadline(10*time.Second), catchUp(tc.policy, tc.window))}
				all := c.joinAll(3, jobs)
				c.at(170 * time.Second)
				for _, r := range all {
					r.leave()
				}
				c.at(390 * time.Second)
				c.joinAll(3, jobs)
				c.at(539 * time.Second)
				c.checkCatchUp("j", tc.ran, tc.caught, tc.outcomes, "down")
			})
		})
	}
}

// TestCatchUpAfterTheServerWasAway is the same for a server that no replica reached.
// Promise: P5
func TestCatchUpAfterTheServerWasAway(t *testing.T) {
	for _, tc := range catchUpCases {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.joinAll(3, []scheduler.Job{c.job("j", "* * * * *", tc.length, startDeadline(10*time.Second), catchUp(tc.policy, tc.window))})
				c.at(170 * time.Second)
				c.away(170*time.Second, 390*time.Second, (*wire).refuse)
				c.at(539 * time.Second)
				c.checkCatchUp("j", tc.ran, tc.caught, tc.outcomes, "redis")
			})
		})
	}
}

// stands has a replica stand still from one instant to another, as if it, or its machine, were frozen.
func (c *cluster) stands(from, to time.Duration) func(*scheduler.Config) {
	return func(cfg *scheduler.Config) {
		cfg.Ready = func() bool {
			if now := time.Since(c.start); now >= from && now < to {
				c.at(to)
			}
			return true
		}
	}
}

// TestCatchUpAfterAllStoodStill is the same for replicas that were there, and looked at nothing.
// Promise: P5
func TestCatchUpAfterAllStoodStill(t *testing.T) {
	for _, tc := range catchUpCases {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.joinAll(3, []scheduler.Job{c.job("j", "* * * * *", tc.length, startDeadline(10*time.Second), catchUp(tc.policy, tc.window))},
					c.stands(170*time.Second, 390*time.Second))
				c.at(539 * time.Second)
				c.checkCatchUp("j", tc.ran, tc.caught, tc.outcomes, "overload")
			})
		})
	}
}

// Ticks that came due while one replica stood still, and others were down, are left to be caught up, whichever replica looks first.
// Promise: P5
func TestWhoStoodStillDecidesNothing(t *testing.T) {
	for _, thaws := range []time.Duration{380 * time.Second, 390 * time.Second, 400 * time.Second} {
		t.Run(fmt.Sprint("until ", thaws), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "* * * * *", time.Second, startDeadline(10*time.Second), catchUp(scheduler.CatchUpAll, 0))}
				other := c.join("r0", jobs)
				c.join("r1", jobs, c.stands(170*time.Second, thaws))
				c.at(170 * time.Second)
				other.leave()
				c.at(390 * time.Second)
				c.join("r2", jobs)
				c.at(539 * time.Second)
				c.checkCatchUp("j", []int{60, 120, 180, 240, 300, 360, 420, 480}, []int{180, 240, 300, 360}, map[string]int{"ok": 8}, "")
			})
		})
	}
}

func (c *cluster) checkCatchUp(job string, ran, caught []int, outcomes map[string]int, reason string) {
	c.t.Helper()
	want(c.t, "ticks that ran", c.ticks(job), ran)
	triggers := map[int]string{}
	for _, s := range ran {
		triggers[s] = "schedule"
	}
	for _, s := range caught {
		triggers[s] = "catch_up"
	}
	want(c.t, "triggers", c.triggers(job), triggers)
	told := map[string]int{}
	for verdict, n := range outcomes {
		if verdict == "missed GAP" {
			verdict = "missed " + reason
		}
		told[verdict] = n
	}
	want(c.t, "outcomes", c.outcomes(job), told)
	c.checkRuns(job, 1, 1)
}

// TestNothingToCatchUp: not for a job that is new to the cluster, nor by a schedule that was edited.
// Promise: P5
func TestNothingToCatchUp(t *testing.T) {
	inCluster(t, func(c *cluster) {
		all := catchUp(scheduler.CatchUpAll, 0)
		old := c.join("r0", []scheduler.Job{c.job("j", "* * * * *", 0, all)})
		c.at(90 * time.Second)
		old.leave()
		c.at(10 * time.Minute)
		c.join("r1", []scheduler.Job{c.job("j", "*/2 * * * *", 0, all), c.job("new", "* * * * *", 0, all)})
		c.at(11*time.Minute + time.Second)
		want(t, "by the edited schedule", c.ticks("j"), []int{60})
		want(t, "of the new job", c.ticks("new"), []int{660})
	})
}

// TestOnlyWhatNobodyCouldDecideIsCaughtUp: a tick for which there was no place is missed.
// Promise: P6
func TestOnlyWhatNobodyCouldDecideIsCaughtUp(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.join("r0", []scheduler.Job{
			c.job("fills", "0 * * * *", 50*time.Minute, startDeadline(time.Minute)),
			c.job("j", "30 * * * *", 0, startDeadline(10*time.Second), catchUp(scheduler.CatchUpAll, 0)),
		}, func(cfg *scheduler.Config) { cfg.MaxRunning = 1 })
		c.at(2*time.Hour + time.Minute)
		want(t, "outcomes", c.outcomes("j"), map[string]int{"ok": 1, "missed capacity": 1})
	})
}

// With catch_up latest only the newest tick is caught up, though each tick was the latest when it came due.
// Promise: P9
func TestOnlyTheLatestIsCaughtUp(t *testing.T) {
	testtier.Slow(t)
	inCluster(t, func(c *cluster) {
		c.joinAll(3, []scheduler.Job{c.job("j", "0 * * * *", 0, startDeadline(time.Minute), catchUp(scheduler.CatchUpLatest, 0))})
		c.away(50*time.Minute, 3*time.Hour+30*time.Minute, (*wire).refuse)
		c.at(4*time.Hour + time.Minute)
		want(t, "triggers", c.triggers("j"), map[int]string{3 * 3600: "catch_up", 4 * 3600: "schedule"})
		want(t, "outcomes", c.outcomes("j"), map[string]int{"ok": 2, "missed redis": 2})
	})
}

// A tick that is caught up waits for its pool no longer than any run may: its catch_up_window is for the time in which no replica was there.
// Promise: P9
func TestCaughtUpTickWaitsForItsPool(t *testing.T) {
	for _, tc := range []struct {
		name           string
		deadline, back time.Duration
		by             time.Duration
	}{
		{"start_deadline", 10 * time.Second, 200 * time.Second, 215 * time.Second},
		{"auto", 0, 4000 * time.Second, 4000*time.Second + 61*time.Minute},
		{"its window", 2 * time.Hour, 24*time.Hour + 30*time.Second, 24*time.Hour + 61*time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "0 1 0 1 * *", time.Second, startDeadline(tc.deadline), pool(1), catchUp(scheduler.CatchUpLatest, 0), lease(10*time.Minute))}
				before, other := c.join("before", jobs), c.replica("other", nil)
				c.at(time.Second)
				before.leave()
				c.at(tc.back)
				slot := other.enter(1, time.Hour)
				c.joinAll(2, jobs)
				c.at(tc.back + 5*time.Second)
				want(t, "told so far", c.told("j"), map[int][]string{})
				c.at(tc.by)
				want(t, "told", c.told("j"), map[int][]string{60: {"missed pool"}})
				_ = slot.End(context.Background())
			})
		})
	}
}

// A tick that is caught up and waits for its pool is given back by a replica that drains: another replica catches it up.
// Promise: P5
func TestCaughtUpTickIsGivenBack(t *testing.T) {
	for _, policy := range []scheduler.CatchUpPolicy{scheduler.CatchUpLatest, scheduler.CatchUpAll} {
		t.Run(string(policy), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "0 1 0 * * *", time.Second, startDeadline(time.Minute), pool(1), catchUp(policy, 0), lease(time.Minute))}
				before, other := c.join("before", jobs), c.replica("other", nil)
				c.at(time.Second)
				before.leave()
				c.at(200 * time.Second)
				slot := other.enter(1, time.Hour)
				leaver := c.join("leaver", jobs)
				c.at(201 * time.Second)
				c.join("next", jobs)
				c.at(210 * time.Second)
				want(t, "holder", leaver.state("j").Running[0].Holder, "leaver")
				leaver.leave()
				c.at(220 * time.Second)
				_ = slot.End(context.Background())
				c.at(300 * time.Second)
				want(t, "told", c.told("j"), map[int][]string{60: {"ok"}})
				want(t, "triggers", c.triggers("j"), map[int]string{60: "catch_up"})
			})
		})
	}
}
