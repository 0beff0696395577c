package scheduler_test

import (
	"testing"
	"time"

	"github.com/cronclave/cronclave/scheduler"
)

// TestEachTickRunsOnce is the main job, without any trouble: whatever the number of replicas, the length of the runs and the
// distance of their clocks from the truth.
func TestEachTickRunsOnce(t *testing.T) {
	for _, tc := range []struct {
		name     string
		replicas int
		clocks   time.Duration // of the replicas, spread from minus to plus this
	}{
		{"one replica", 1, 0}, {"three", 3, 0}, {"five", 5, 0}, {"three with wrong clocks", 3, 3 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{
					c.job("short", "* * * * * *", time.Millisecond),
					c.job("long", "*/5 * * * * *", 4900*time.Millisecond),
					c.job("minute", "* * * * *", 10*time.Second),
				}
				for i := range tc.replicas {
					off := time.Duration(0)
					if tc.replicas > 1 {
						off = -tc.clocks + 2*tc.clocks*time.Duration(i)/time.Duration(tc.replicas-1)
					}
					c.join(string(rune('a'+i)), jobs, func(cfg *scheduler.Config) {
						cfg.Clock = func() time.Time { return time.Now().Add(off) }
					})
				}
				c.at(3*time.Minute + 30*time.Second + 500*time.Millisecond)
				want(t, "short", c.ticks("short"), seconds(1, 210, 1))
				want(t, "long", c.ticks("long"), seconds(5, 210, 5))
				want(t, "minute", c.ticks("minute"), seconds(60, 180, 60))
				for _, j := range jobs {
					c.checkRuns(j.Name, 1, 1)
					for _, r := range c.runs(j.Name) {
						if late := r.from.Sub(r.Tick); late > 20*time.Millisecond {
							t.Errorf("%s %d ran %v late", j.Name, c.second(r.Tick), late)
						}
					}
				}
				want(t, "outcomes of short", c.outcomes("short"), map[string]int{"ok": 210})
			})
		})
	}
}
