package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/cronspec"
	"github.com/cronclave/cronclave/scheduler/run"
)

// TestEachTickRunsOnce is the main job, without any trouble: whatever the number of replicas, the length of the runs and the
// distance of their clocks from the truth.
// Promise: P1, P2
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
				c.at(70*time.Second + 500*time.Millisecond)
				want(t, "short", c.ticks("short"), seconds(1, 70, 1))
				want(t, "long", c.ticks("long"), seconds(5, 70, 5))
				want(t, "minute", c.ticks("minute"), seconds(60, 60, 60))
				for _, j := range jobs {
					c.checkRuns(j.Name, 1, 1)
					for _, r := range c.runs(j.Name) {
						if late := r.from.Sub(r.Tick); late > 20*time.Millisecond {
							t.Errorf("%s %d ran %v late", j.Name, c.second(r.Tick), late)
						}
					}
				}
				want(t, "outcomes of short", c.outcomes("short"), map[string]int{"ok": 70})
			})
		})
	}
}

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
	return elector.Inspect(context.Background(), []election.InspectRequest{{Lock: election.JobLock(job)}})[0]
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
				one := c.runs("j")[0]
				want(t, "length", one.to.Sub(one.from), tc.length)
				want(t, "outcomes", c.outcomes("j"), map[string]int{"timeout": 1})
				if !errors.Is(one.cause, run.ErrTimeout) {
					t.Errorf("stopped with %v", one.cause)
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
			if a.Lock == election.JobLock("j") {
				want(t, "deadline", a.Tick.Deadline.Sub(a.Tick.At), time.Hour)
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

// TestPlacesThatWereNotWonAreUsed: a replica whose claims were lost to others has its places free again, and
// takes the ticks that it had left aside for want of a place.
func TestPlacesThatWereNotWonAreUsed(t *testing.T) {
	testtier.Slow(t)
	inCluster(t, func(c *cluster) {
		var jobs []scheduler.Job
		for i := range 40 {
			jobs = append(jobs, c.job(fmt.Sprint("j", i), "0 * * * * *", 50*time.Second, startDeadline(5*time.Second)))
		}
		c.joinAll(4, jobs, func(cfg *scheduler.Config) { cfg.MaxRunning = 10 })
		const minutes = 20 // chance decides which replica claims which tick
		c.at(minutes*time.Minute + 30*time.Second)
		for _, j := range jobs {
			want(t, j.Name, c.ticks(j.Name), seconds(60, minutes*60, 60))
		}
	})
}

// TestManyJobsAtOnce has far more jobs due at one instant than may run at once.
func TestManyJobsAtOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.quiet = true
		var jobs []scheduler.Job
		for i := range 200 {
			jobs = append(jobs, c.job(fmt.Sprint("j", i), "0 1 0 * * *", time.Second, startDeadline(time.Minute)))
		}
		c.joinAll(2, jobs, func(cfg *scheduler.Config) { cfg.MaxRunning = 10 })
		c.at(time.Minute + 30*time.Second)
		c.mu.Lock()
		defer c.mu.Unlock()
		want(t, "runs", len(c.ran), len(jobs))
		most := 0
		for i := range c.ran {
			n := 1
			for _, o := range c.ran[:i] {
				if o.Replica == c.ran[i].Replica && o.to.After(c.ran[i].from) {
					n++
				}
			}
			most = max(most, n)
		}
		want(t, "most at once on a replica", most, 10)
		if last := c.ran[len(c.ran)-1].from; last.After(c.start.Add(time.Minute + 11*time.Second)) {
			t.Errorf("the last began at %v: places were left empty", last.Sub(c.start))
		}
	})
}

// TestUnreadyReplicaStartsNothing: its ticks wait, or are left to others, until runs may be started again.
// Promise: P7
func TestUnreadyReplicaStartsNothing(t *testing.T) {
	for _, others := range []int{0, 2} {
		t.Run(fmt.Sprint(others, " others"), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond, startDeadline(30*time.Second))}
				var unready atomic.Bool
				c.join("r", jobs, func(cfg *scheduler.Config) { cfg.Ready = func() bool { return !unready.Load() } })
				for i := range others {
					c.join(fmt.Sprint("other", i), jobs)
				}
				c.at(10500 * time.Millisecond)
				unready.Store(true)
				c.at(20500 * time.Millisecond)
				for _, r := range c.runs("j") {
					if r.Replica == "r" && c.second(r.Tick) > 10 {
						t.Errorf("started tick %d", c.second(r.Tick))
					}
				}
				unready.Store(false)
				c.at(21900 * time.Millisecond)
				want(t, "ticks in the order of their starts", c.ticks("j"), seconds(1, 21, 1))
			})
		})
	}
}

// TestWinsAreSpread over the replicas, and each tick costs one request: those who hear who won do not ask.
func TestWinsAreSpread(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var jobs []scheduler.Job
		for i := range 300 {
			jobs = append(jobs, c.job(fmt.Sprint("j", i), "*/10 * * * * *", time.Millisecond))
		}
		replicas := c.joinAll(3, jobs, c.ranked)
		c.at(15 * time.Second)
		asked, wins := 0, map[string]int{}
		for _, r := range replicas {
			asked += len(r.claims(c.start))
		}
		for _, j := range jobs {
			c.checkRuns(j.Name, 1, 1)
			want(t, "ticks of "+j.Name, c.ticks(j.Name), []int{10})
			wins[c.runs(j.Name)[0].Replica]++
		}
		if asked > len(jobs)*11/10 { // some are under way when the event comes
			t.Errorf("%d claims for %d ticks", asked, len(jobs))
		}
		for name, n := range wins {
			if n < 60 || n > 140 {
				t.Errorf("%s won %d of %d", name, n, len(jobs))
			}
		}
	})
}

// The first replica in the ranks of a job may be dead, and the others do not wait for it.
func TestDeadFavouriteCostsMilliseconds(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var jobs []scheduler.Job
		for i := range 30 {
			jobs = append(jobs, c.job(fmt.Sprint("j", i), "*/10 * * * * *", time.Millisecond))
		}
		replicas := c.joinAll(3, jobs, c.ranked)
		c.at(15 * time.Second)
		replicas[0].die()
		c.at(25 * time.Second)
		for _, j := range jobs {
			runs := c.runs(j.Name)
			if len(runs) != 2 {
				t.Fatalf("%s ran %d times", j.Name, len(runs))
			}
			if late := runs[1].from.Sub(runs[1].Tick); late > 20*time.Millisecond {
				t.Errorf("%s began %v late", j.Name, late)
			}
		}
	})
}

// Replicas that lost a tick watch its run although they never claimed it: the winner may die.
func TestLosersKeepWatch(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "10 0 0 * * *", time.Minute, lease(10*time.Second))}
		replicas := c.joinAll(3, jobs, c.ranked)
		c.at(12 * time.Second)
		asked := 0
		for _, r := range replicas {
			asked += len(r.claims(c.start))
			if r.name == c.runs("j")[0].Replica {
				r.die()
			}
		}
		want(t, "claims", asked, 1)
		c.at(23 * time.Second)
		want(t, "told", c.told("j")[10], []string{"abandoned"})
	})
}

// An event that is not heard costs a claim, and nothing else.
func TestSilentEvents(t *testing.T) {
	inCluster(t, func(c *cluster) {
		deaf := func(cfg *scheduler.Config) { c.ranked(cfg); cfg.GrantEvents = nil }
		replicas := c.joinAll(3, []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond)}, deaf)
		c.at(10500 * time.Millisecond)
		want(t, "ticks that ran", c.ticks("j"), seconds(1, 10, 1))
		for _, r := range replicas {
			want(t, "claims of "+r.name, len(r.claims(c.start)), 10)
		}
	})
}

// TestNoticeOfOneGrantOfSeveral is no reason not to ask: one of those that ask first is dead, and another takes its place.
func TestNoticeOfOneGrantOfSeveral(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var jobs []scheduler.Job
		for i := range 10 {
			jobs = append(jobs, c.job(fmt.Sprint("j", i), "*/10 * * * * *", time.Millisecond, parallel(2, 2, 1)))
		}
		replicas := c.joinAll(3, jobs, c.ranked)
		c.at(15 * time.Second)
		replicas[0].die()
		c.at(25 * time.Second)
		for _, j := range jobs {
			want(t, "ticks of "+j.Name, c.ticks(j.Name), []int{10, 10, 20, 20})
		}
	})
}

// The replica that claims last claims first the ticks to which their favourite comes last. That delays no tick.
// Promise: P9
func TestOthersHelpFromTheOtherEnd(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var jobs []scheduler.Job
		for i := range 200 {
			jobs = append(jobs, c.job(fmt.Sprint("j", i), "*/10 * * * * *", time.Millisecond))
		}
		replicas := c.joinAll(2, jobs, c.ranked)
		tick := c.start.Add(10 * time.Second)
		turns := func(job string) (first, second time.Duration) {
			a, b := replicas[0].Turn(job, tick), replicas[1].Turn(job, tick)
			return min(a, b), max(a, b)
		}
		differ := 0
		for i, j := range jobs {
			first, second := turns(j.Name)
			if first > time.Microsecond || second < 4*time.Millisecond {
				t.Errorf("%s is asked for after %v and %v", j.Name, first, second)
			}
			for _, other := range jobs[:i] {
				f, s := turns(other.Name)
				if (first < f) != (second > s) {
					t.Fatalf("%s is asked for after %v and %v, %s after %v and %v", j.Name, first, second, other.Name, f, s)
				}
				if first < f {
					differ++
				}
			}
		}
		if differ < 1000 {
			t.Errorf("only %d pairs of jobs are asked for one after the other", differ)
		}
	})
}

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
