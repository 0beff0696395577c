package scheduler_test

import (
	"testing"
	"time"

	"github.com/cronclave/cronclave/scheduler"
)

// Ticks that waited for the server replace nothing that was started meanwhile; but when such a run outlasts a period, the newest tick wins again, long
// before the start deadlines of the ticks that wait.
// Promise: P9
func TestBacklogOfLongRunsComesToAnEnd(t *testing.T) {
	inCluster(t, func(c *cluster) {
		replicas := c.joinAll(2, []scheduler.Job{
			c.job("j", "*/10 * * * * *", 0, c.dying(time.Hour, 0), replaces, lease(4*time.Second), startDeadline(time.Minute))})
		c.at(25 * time.Second)
		for _, r := range replicas {
			r.wire.silence()
		}
		c.at(45 * time.Second)
		for _, r := range replicas {
			r.wire.restore()
		}
		c.at(105 * time.Second)
		replaced, passed := []string{"canceled replaced"}, []string{"skipped overlap"}
		want(t, "outcomes", c.told("j"), map[int][]string{10: replaced, 20: {"lost"}, 30: replaced, 40: passed, 50: passed, 60: replaced, 70: replaced,
			80: replaced, 90: replaced, 100: {"running"}})
		c.checkRuns("j", 1, 1)
	})
}
