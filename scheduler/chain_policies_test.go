package scheduler_test

import (
	"testing"
	"time"

	"github.com/cronclave/cronclave/scheduler"
)

// chainPolicies are jobs j and k of each ten seconds, one of which runs after the other, and a job last after that, for a minute and a half.
var chainPolicies = []struct {
	name    string
	jobs    func(c *cluster) []scheduler.Job
	happens func(c *cluster, jobs []scheduler.Job)
	told    map[string]map[int][]string // by job; ticks that are left out are not looked at
	last    []int
}{
	{"the parent is paused", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("j", everyTen, time.Second), c.job("k", "", time.Second, after("j")), c.job("last", "", time.Second, after("k"))}
	}, pausedFor20, map[string]map[int][]string{"j": {20: {"skipped paused"}, 30: {"skipped paused"}}, "k": {20: nil, 30: nil, 40: {"ok"}}}, []int{10, 40, 50, 60, 70, 80}},
	{"the child is paused", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("k", everyTen, time.Second), c.job("j", "", time.Second, after("k")), c.job("last", "", time.Second, after("j"))}
	}, pausedFor20, map[string]map[int][]string{"k": {20: {"ok"}}, "j": {20: {"skipped paused"}, 30: {"skipped paused"}, 40: {"ok"}}}, []int{10, 40, 50, 60, 70, 80}},
	{"a tick of before a pause of the child, that comes due in it", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("k", "10 0 0 * * *", 10*time.Second), c.job("j", "", time.Second, after("k")), c.job("last", "", time.Second, after("j"))}
	}, pausedFor20, map[string]map[int][]string{"j": {10: {"skipped paused"}}}, nil},
	{"the parent is caught up", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("j", everyTen, time.Second, catchUp(scheduler.CatchUpAll, 0), startDeadline(time.Second)), c.job("k", "", time.Second/2, after("j")),
			c.job("last", "", time.Second/2, after("k"))} // shorter than j, which follows itself: else a tick may come due when the run before it ends
	}, func(c *cluster, jobs []scheduler.Job) {
		c.at(15 * time.Second)
		leave(c.replicas)
		c.at(45 * time.Second)
		c.joinAll(3, jobs)
	}, nil, []int{10, 20, 30, 40, 50, 60, 70, 80}},
	{"the parent is recovered", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("j", "10 0 0 * * *", 0, c.hanging(1), recovers(1), lease(3*time.Second)), c.job("k", "", time.Second, after("j")),
			c.job("last", "", time.Second, after("k"))}
	}, func(c *cluster, _ []scheduler.Job) {
		c.at(12 * time.Second)
		c.killHolder("j")
	}, map[string]map[int][]string{"j": {10: {"abandoned", "ok"}}, "k": {10: {"ok"}}}, []int{10}},
	{"the child is recovered while it has a slot of a pool", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("j", "10 0 0 * * *", time.Second), c.job("k", "", 0, c.hanging(1), recovers(1), lease(3*time.Second), after("j"), pool(1)),
			c.job("last", "", time.Second, after("k"), pool(1))}
	}, func(c *cluster, _ []scheduler.Job) {
		c.at(13 * time.Second)
		c.killHolder("k")
	}, map[string]map[int][]string{"j": {10: {"ok"}}, "k": {10: {"abandoned", "ok"}}}, []int{10}},
	{"the child is replaced", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("j", "10,20,30 0 0 * * *", time.Second), c.job("k", "", 15*time.Second, after("j"), replaces), c.job("last", "", time.Second, after("k"))}
	}, func(*cluster, []scheduler.Job) {}, map[string]map[int][]string{"k": {10: {"canceled replaced"}, 20: {"canceled replaced"}, 30: {"ok"}}}, []int{30}},
	{"the child misses its pool", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("j", "10,20,30 0 0 * * *", time.Second), c.job("k", "", time.Second, after("j"), pool(1), startDeadline(5*time.Second)),
			c.job("last", "", time.Second, after("k"))}
	}, func(c *cluster, _ []scheduler.Job) {
		c.at(15 * time.Second)
		slot := c.replicas[1].enter(1, time.Minute)
		c.at(28 * time.Second)
		_ = slot.End(c.t.Context())
	}, map[string]map[int][]string{"k": {20: {"missed pool"}, 30: {"ok"}}}, []int{10, 30}},
}

func pausedFor20(c *cluster, _ []scheduler.Job) {
	c.at(15 * time.Second)
	operator{c}.pause(20 * time.Second)
}

// A job runs exactly after those runs of the jobs before it that their other policies have let run in the end.
// Promise: P1
func TestChainsAndOtherPolicies(t *testing.T) {
	for _, tc := range chainPolicies {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := tc.jobs(c)
				c.joinAll(3, jobs)
				tc.happens(c, jobs)
				c.at(88 * time.Second)
				for job, ticks := range tc.told {
					for tick, told := range ticks {
						want(t, job, c.told(job)[tick], told)
					}
				}
				want(t, "ticks of the last one", c.ticks("last"), tc.last)
			})
		})
	}
}
