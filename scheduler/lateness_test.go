package scheduler_test

import (
	"testing"
	"time"

	"github.com/cronclave/cronclave/scheduler"
)

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
