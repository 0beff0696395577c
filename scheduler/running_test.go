package scheduler_test

import (
	"maps"
	"testing"
	"time"

	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// RunningByJob counts all runs on the replica by job, and has no entry for a job whose runs are over.
// Promise: P6
func TestRunningByJob(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.join("r", []scheduler.Job{c.job("short", "*/30 * * * * *", 5*time.Second), c.job("long", "*/30 * * * * *", 22*time.Second),
			c.job("wide", "*/10 * * * * *", 15*time.Second, func(j *scheduler.Job) { j.Parallel, j.PerReplica = 2, 2 })})
		for _, tc := range []struct {
			at   time.Duration
			runs map[string]int
		}{
			{5 * time.Second, nil},
			{32 * time.Second, map[string]int{"short": 1, "long": 1, "wide": 2}},
			{37 * time.Second, map[string]int{"long": 1, "wide": 1}},
			{54 * time.Second, map[string]int{"wide": 2}},
		} {
			c.at(tc.at)
			all := 0
			for _, n := range tc.runs {
				all += n
			}
			if got := r.RunningByJob(); !maps.Equal(got, tc.runs) || r.Running() != all {
				t.Errorf("at %v: %v, %d in all; want %v", tc.at, got, r.Running(), tc.runs)
			}
		}
	})
}

// TestDue: a run knows from when it could start: its jitter after its tick, or when the jobs before it had ended.
// Promise: P6
func TestDue(t *testing.T) {
	inCluster(t, func(c *cluster) {
		const jitter, length = 4 * time.Second, 3 * time.Second
		c.joinAll(2, []scheduler.Job{c.job("first", everyTen, length, func(j *scheduler.Job) { j.Jitter = jitter }), c.job("then", "", time.Millisecond, after("first"))})
		c.at(time.Minute + 9*time.Second)
		want(t, "ticks that ran", c.ticks("then"), seconds(10, 60, 10))
		due := map[time.Time]time.Time{}
		for _, r := range c.runs("first") {
			due[r.Tick] = r.Tick.Add(cronspec.Jitter("first", r.Tick, r.Tick.Add(10*time.Second), jitter))
			want(t, "when that of first was due", r.Due.Sub(r.Tick), due[r.Tick].Sub(r.Tick))
		}
		for _, r := range c.runs("then") {
			want(t, "when the one behind it was due", r.Due.Sub(due[r.Tick]).Truncate(100*time.Millisecond), length)
		}
	})
}
