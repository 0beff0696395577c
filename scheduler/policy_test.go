package scheduler_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// edit changes a job of a test.
type edit = func(*scheduler.Job)

func parallel(slots, perTick, perReplica int) edit {
	return func(j *scheduler.Job) { j.Parallel, j.PerTick, j.PerReplica = slots, perTick, perReplica }
}

func startDeadline(d time.Duration) edit {
	return func(j *scheduler.Job) { j.StartDeadline = d }
}

func lease(d time.Duration) edit { return func(j *scheduler.Job) { j.Lease = d } }

// stubborn ignores that it is told to stop, and ends when it must.
func (c *cluster) stubborn(d time.Duration) edit {
	return func(j *scheduler.Job) {
		j.Runner = scheduler.Func(func(ctx context.Context, run *scheduler.Run) error {
			seen := c.began(run)
			select {
			case <-time.After(d):
			case <-run.Kill.Done():
			}
			c.ended(seen, context.Cause(ctx))
			return nil
		})
	}
}

// TestSlots runs a job every ten seconds for a minute and checks which ticks ran, in which slots, and their records.
func TestSlots(t *testing.T) {
	for _, tc := range []struct {
		name              string
		replicas          int
		length            time.Duration
		edits             []edit
		parallel, perTick int
		ticks             []int
		outcomes          map[string]int
	}{
		{"runs that overlap the next tick skip it", 3, 15 * time.Second, nil, 1, 1,
			[]int{10, 30, 50}, map[string]int{"ok": 3, "skipped overlap": 3}},
		{"parallel 2 lets two ticks overlap", 3, 15 * time.Second, []edit{parallel(2, 1, 1)}, 2, 1,
			[]int{10, 20, 30, 40, 50, 60}, map[string]int{"ok": 6}},
		{"parallel 2 skips the third", 3, 25 * time.Second, []edit{parallel(2, 1, 1)}, 2, 1,
			[]int{10, 20, 40, 50}, map[string]int{"ok": 4, "skipped overlap": 2}},
		{"a replica without a free place waits for it", 1, 14 * time.Second, []edit{parallel(2, 1, 1)}, 2, 1,
			[]int{10, 20, 30, 50}, map[string]int{"ok": 4, "missed capacity": 1}}, // it leaves before 60 gets its place
		{"per_replica 2 on one replica", 1, 15 * time.Second, []edit{parallel(2, 1, 2)}, 2, 1,
			[]int{10, 20, 30, 40, 50, 60}, map[string]int{"ok": 6}},
		{"fan-out to three replicas", 3, time.Second, []edit{parallel(3, 3, 1)}, 3, 3,
			[]int{10, 10, 10, 20, 20, 20, 30, 30, 30, 40, 40, 40, 50, 50, 50, 60, 60, 60}, map[string]int{"ok": 18}},
		{"fan-out to fewer replicas", 2, time.Second, []edit{parallel(3, 3, 1)}, 3, 3,
			[]int{10, 10, 20, 20, 30, 30, 40, 40, 50, 50, 60, 60}, map[string]int{"ok": 12}},
		{"fan-out within one replica", 1, time.Second, []edit{parallel(3, 3, 3)}, 3, 3,
			[]int{10, 10, 10, 20, 20, 20, 30, 30, 30, 40, 40, 40, 50, 50, 50, 60, 60, 60}, map[string]int{"ok": 18}},
		{"two of four slots a tick", 4, 15 * time.Second, []edit{parallel(4, 2, 1)}, 4, 2,
			[]int{10, 10, 20, 20, 30, 30, 40, 40, 50, 50, 60, 60}, map[string]int{"ok": 12}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.joinAll(tc.replicas, []scheduler.Job{c.job("j", "*/10 * * * * *", tc.length, tc.edits...)})
				c.at(65 * time.Second)
				for _, r := range c.replicas {
					r.stop()
				}
				c.at(100 * time.Second)
				want(t, "ticks that ran", c.ticks("j"), tc.ticks)
				want(t, "outcomes", c.outcomes("j"), tc.outcomes)
				c.checkRuns("j", tc.parallel, tc.perTick)
			})
		})
	}
}

// TestFanOutReachesEveryReplica: a replica that is quick does not take the place of one that is slow.
func TestFanOutReachesEveryReplica(t *testing.T) {
	inCluster(t, func(c *cluster) {
		replicas := c.joinAll(3, []scheduler.Job{c.job("j", "*/10 * * * * *", time.Millisecond, parallel(3, 3, 1))})
		for s := 10; s <= 60; s += 10 {
			c.at(time.Duration(s)*time.Second - time.Second)
			replicas[2].wire.plan(fault{lateRequest, 300 * time.Millisecond})
		}
		c.at(65 * time.Second)
		by := map[string]int{}
		for _, r := range c.runs("j") {
			by[r.Replica]++
		}
		want(t, "runs of each replica", by, map[string]int{"r0": 6, "r1": 6, "r2": 6})
	})
}

// A tick that is granted less often than it may be holds nothing up.
func TestTickWithFewGrantsIsSettled(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.joinAll(2, []scheduler.Job{c.job("j", "*/10 * * * * *", time.Second, parallel(3, 3, 1), startDeadline(4*time.Second))})[0]
		c.at(15 * time.Second)
		want(t, "decided after the deadline", c.second(r.state("j").Decided), 10)
	})
}

// state is what the cluster knows of a job.
func (r *replica) state(job string) election.State {
	elector, err := election.New(election.Config{Locks: r.locks})
	if err != nil {
		r.cluster.t.Fatal(err)
	}
	return elector.Inspect(context.Background(), []election.InspectRequest{{Job: job}})[0]
}

// TestSkipIsRecordedOnce: all replicas agree on one outcome for each tick that was not run.
func TestSkipIsRecordedOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.joinAll(5, []scheduler.Job{c.job("j", "* * * * * *", 2500*time.Millisecond)})
		c.at(10*time.Second + 900*time.Millisecond)
		told := c.told("j")
		for s := 1; s <= 10; s++ {
			expected := []string{"skipped overlap"}
			if s%3 == 1 {
				expected = []string{"ok"}
			}
			if s == 10 {
				expected = []string{"running"}
			}
			want(t, "outcomes of tick "+time.Duration(s*1e9).String(), told[s], expected)
		}
	})
}

// TestJitter: a tick starts at its jitter, the same on all replicas, not before.
// Promise: P2
func TestJitter(t *testing.T) {
	inCluster(t, func(c *cluster) {
		const jitter = 8 * time.Second
		c.joinAll(3, []scheduler.Job{c.job("j", "*/10 * * * * *", time.Millisecond, func(j *scheduler.Job) { j.Jitter = jitter })})
		c.at(5*time.Minute + 9*time.Second)
		want(t, "ticks that ran", c.ticks("j"), seconds(10, 300, 10))
		spread := map[time.Duration]bool{}
		for _, r := range c.runs("j") {
			delay := cronspec.Jitter("j", r.Tick, r.Tick.Add(10*time.Second), jitter)
			want(t, "start of "+r.Tick.String(), r.from.Sub(r.Tick).Truncate(time.Millisecond), delay)
			spread[delay] = true
		}
		if len(spread) < 20 {
			t.Errorf("only %d delays in 30 ticks", len(spread))
		}
	})
}

// TestTimeout: the run is told to stop at its timeout, is killed its grace later, and keeps its slot until it is dead.
func TestTimeout(t *testing.T) {
	for _, tc := range []struct {
		name   string
		grace  time.Duration
		stub   bool
		length time.Duration
	}{
		{"obeys", 3 * time.Second, false, 5 * time.Second},
		{"is killed", 3 * time.Second, true, 8 * time.Second},
		{"is killed at once", -1, true, 5 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				edits := []edit{func(j *scheduler.Job) { j.Timeout, j.KillGrace = 5*time.Second, tc.grace }}
				if tc.stub {
					edits = append(edits, c.stubborn(time.Hour))
				}
				c.joinAll(2, []scheduler.Job{c.job("j", "* * * * *", time.Hour, edits...)})
				c.at(90 * time.Second)
				run := c.runs("j")[0]
				want(t, "length", run.to.Sub(run.from), tc.length)
				want(t, "outcomes", c.outcomes("j"), map[string]int{"timeout": 1})
				if !errors.Is(run.cause, scheduler.ErrTimeout) {
					t.Errorf("stopped with %v", run.cause)
				}
			})
		})
	}
}

// TestStartDeadline holds a job's only slot from elsewhere, so that ticks wait, and checks their outcomes.
func TestStartDeadline(t *testing.T) {
	for _, tc := range []struct {
		name     string
		schedule string
		edits    []edit
		full     time.Duration // how long the replica is full, from second 5 on
		ticks    []int         // that ran
		told     map[int][]string
	}{
		{"auto ends at the next tick", "*/10 * * * * *", nil, 24 * time.Second,
			[]int{20, 30, 40}, map[int][]string{10: {"missed capacity"}, 20: {"ok"}, 30: {"ok"}, 40: {"ok"}}},
		{"given, shorter", "*/10 * * * * *", []edit{startDeadline(3 * time.Second)}, 20 * time.Second,
			[]int{30, 40}, map[int][]string{10: {"missed capacity"}, 20: {"missed capacity"}, 30: {"ok"}, 40: {"ok"}}},
		{"given, longer", "*/10 * * * * *", []edit{startDeadline(time.Minute)}, 20 * time.Second,
			[]int{10, 20, 30, 40}, map[int][]string{10: {"ok"}, 20: {"ok"}, 30: {"ok"}, 40: {"ok"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.join("r", []scheduler.Job{
					c.job("other", "5 0 0 * * *", tc.full),
					c.job("j", tc.schedule, time.Millisecond, tc.edits...),
				}, func(cfg *scheduler.Config) { cfg.MaxRunning = 1 })
				c.at(45 * time.Second)
				want(t, "ticks that ran", c.ticks("j"), tc.ticks)
				want(t, "told", c.told("j"), tc.told)
			})
		})
	}
}

// TestAutoDeadlineIsAnHourAtMost: a yearly job does not start in summer.
func TestAutoDeadlineIsAnHourAtMost(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.join("r", []scheduler.Job{c.job("other", "5 0 0 * * *", 2*time.Hour), c.job("j", "0 1 1 1 *", time.Millisecond)},
			func(cfg *scheduler.Config) { cfg.MaxRunning = 1 })
		c.at(2*time.Hour + 2*time.Second)
		for _, a := range r.claims(c.start) {
			if a.Job == "j" {
				want(t, "deadline", a.Deadline.Sub(a.Tick), time.Hour)
			}
		}
		want(t, "outcomes", c.outcomes("j"), map[string]int{"missed capacity": 1})
	})
}

// TestFullReplicaLeavesTicksToOthers: MaxRunning bounds what a replica takes, and nothing is lost by it.
func TestFullReplicaLeavesTicksToOthers(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var jobs []scheduler.Job
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			jobs = append(jobs, c.job(name, "*/10 * * * * *", 9*time.Second))
		}
		c.join("small", jobs, func(cfg *scheduler.Config) { cfg.MaxRunning = 1 })
		c.join("big", jobs, func(cfg *scheduler.Config) { cfg.MaxRunning = 5 })
		c.at(65 * time.Second)
		small := 0
		for _, j := range jobs {
			want(t, "ticks of "+j.Name, c.ticks(j.Name), seconds(10, 60, 10))
			for _, r := range c.runs(j.Name) {
				if r.Replica == "small" {
					small++
				}
			}
		}
		if small == 0 || small > 6 {
			t.Errorf("the small replica ran %d, of one at a time in six rounds", small)
		}
	})
}
