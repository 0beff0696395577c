package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

// after has a job run after others, instead of by a schedule.
func after(jobs ...string) edit {
	return func(j *scheduler.Job) { j.Schedule, j.After = nil, jobs }
}

// failsAt has the runs of some ticks fail, by the seconds of the test.
func (c *cluster) failsAt(ticks ...int) edit {
	return func(j *scheduler.Job) {
		well := j.Runner
		j.Runner = scheduler.Func(func(ctx context.Context, run *scheduler.Run) error {
			err := well.Run(ctx, run).Err
			if slices.Contains(ticks, c.second(run.Tick)) {
				err = errors.New("no luck")
			}
			return err
		})
	}
}

const (
	everyTen   = "*/10 * * * * *"
	everyThird = "*/30 * * * * *"
)

// chainCases are clusters of three for 95 s.
var chainCases = []struct {
	name  string
	jobs  func(c *cluster) []scheduler.Job
	want  string // the ticks of the job last, by the seconds of the test, in the order of their starts
	told  map[string]int
	slots int
}{
	{"one parent", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("a", everyTen, 3*time.Second), c.job("last", "", 2*time.Second, after("a"))}
	}, "10 20 30 40 50 60 70 80 90", map[string]int{"ok": 9}, 1},
	{"a parent that fails", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("a", everyTen, time.Second, c.failsAt(20, 30, 60)), c.job("last", "", time.Second, after("a"))}
	}, "10 40 50 70 80 90", map[string]int{"ok": 6}, 1},
	{"a parent that is tried again", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("a", everyThird, time.Second, c.failing(1, time.Second, false), func(j *scheduler.Job) { j.Retry = scheduler.Retry{Max: 1, Delay: time.Second} }),
			c.job("last", "", time.Second, after("a"))}
	}, "30 60 90", map[string]int{"ok": 3}, 1},
	{"a parent that skips", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("a", everyTen, 13*time.Second), c.job("last", "", time.Second, after("a"))}
	}, "10 30 50 70", map[string]int{"ok": 4}, 1},
	{"two parents of one schedule", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("a", everyTen, 4*time.Second, c.failsAt(20)), c.job("b", everyTen, time.Second, c.failsAt(40)),
			c.job("last", "", time.Second, after("a", "b"))}
	}, "10 30 50 60 70 80 90", map[string]int{"ok": 7}, 1},
	{"two parents of different schedules", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("a", everyTen, time.Second), c.job("b", everyThird, 12*time.Second), c.job("last", "", time.Second, after("b", "a"))}
	}, "30 60", map[string]int{"ok": 2}, 1},
	{"a grandchild", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("a", everyTen, time.Second, c.failsAt(20)), c.job("b", "", time.Second, after("a"), c.failsAt(50)),
			c.job("last", "", time.Second, after("b"))}
	}, "10 30 40 60 70 80 90", map[string]int{"ok": 7}, 1},
	{"a diamond", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("a", everyTen, time.Second), c.job("b", "", 2*time.Second, after("a"), c.failsAt(50)), c.job("c", "", time.Second, after("a"), c.failsAt(30)),
			c.job("last", "", time.Second, after("b", "c", "a"))}
	}, "10 20 40 60 70 80 90", map[string]int{"ok": 7}, 1},
	{"a child that is slow", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("a", everyTen, time.Second), c.job("last", "", 15*time.Second, after("a"))}
	}, "10 30 50 70 90", map[string]int{"ok": 4, "skipped overlap": 4, "running": 1}, 1},
	{"a slow child that queues", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("a", everyTen, time.Second), c.job("last", "", 14800*time.Millisecond, after("a"), // no run of it ends when one of a does
			func(j *scheduler.Job) { j.Overlap = scheduler.OverlapQueue })}
	}, "10 20 30 40 60 70", nil, 1},
	{"a parent that overlaps itself waits for its earlier ticks", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("a", everyTen, time.Second, parallel(2, 1, 1), c.slowAt(25*time.Second, 30)), c.job("last", "", time.Second, after("a"), parallel(4, 1, 4))}
	}, "10 20 30 40 50 60 70 80 90", map[string]int{"ok": 9}, 4},
	{"a parent in two slots", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("a", everyTen, time.Second, parallel(2, 2, 1), c.failsIn(1, 20, 50)), c.job("last", "", time.Second, after("a"))}
	}, "10 30 40 60 70 80 90", map[string]int{"ok": 7}, 1},
	{"a child in two slots", func(c *cluster) []scheduler.Job {
		return []scheduler.Job{c.job("a", everyThird, time.Second), c.job("last", "", time.Second, after("a"), parallel(2, 2, 1))}
	}, "30 30 60 60 90 90", nil, 2},
}

// slowAt has the runs of some ticks take longer.
func (c *cluster) slowAt(d time.Duration, ticks ...int) edit {
	return func(j *scheduler.Job) {
		fast := j.Runner
		slow := c.job("", "", d).Runner
		j.Runner = scheduler.Func(func(ctx context.Context, run *scheduler.Run) error {
			if slices.Contains(ticks, c.second(run.Tick)) {
				return slow.Run(ctx, run).Err
			}
			return fast.Run(ctx, run).Err
		})
	}
}

// failsIn has the runs of some ticks fail in one slot, and end there before the other.
func (c *cluster) failsIn(slot int, ticks ...int) edit {
	return func(j *scheduler.Job) {
		well := j.Runner
		j.Runner = scheduler.Func(func(ctx context.Context, run *scheduler.Run) error {
			if run.Slot == slot && slices.Contains(ticks, c.second(run.Tick)) {
				return errors.New("no luck")
			}
			return well.Run(ctx, run).Err
		})
	}
}

// TestJobRunsAfterOthers holds that a job runs exactly once for each tick that all jobs before it have ended ok, in order, and after them.
// Promise: P1
func TestJobRunsAfterOthers(t *testing.T) {
	for _, tc := range chainCases {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := tc.jobs(c)
				c.joinAll(3, jobs, c.ranked)
				c.at(95*time.Second + 500*time.Millisecond)
				c.checkChain(jobs[len(jobs)-1], tc.slots, tc.want)
				if tc.told != nil {
					want(t, "outcomes", c.outcomes("last"), tc.told)
				}
			})
		})
	}
}

// checkChain compares the ticks that a job has run, and that each began after the runs of the jobs before it.
func (c *cluster) checkChain(j scheduler.Job, slots int, ticks string) {
	c.t.Helper()
	ran := c.ticks(j.Name)
	if slots > 1 { // those that come due together start at the same time
		slices.Sort(ran)
	}
	want(c.t, "ticks", strings.Trim(fmt.Sprint(ran), "[]"), ticks)
	c.checkRuns(j.Name, slots, max(j.PerTick, 1))
	for _, r := range c.runs(j.Name) {
		for _, name := range j.After {
			for _, before := range c.runs(name) {
				if !before.Tick.After(r.Tick) && (before.to.IsZero() || before.to.After(r.from)) {
					c.t.Errorf("tick %d began before tick %d of %s had ended", c.second(r.Tick), c.second(before.Tick), name)
				}
			}
		}
	}
}

// mortal is a claimer of a replica that something happens to just before it claims a job's first tick.
type mortal struct {
	spy
	job string
	how func(r *replica)
}

func (m mortal) Claim(ctx context.Context, claims []election.Claim) []election.Result {
	if slices.ContainsFunc(claims, func(c election.Claim) bool { return c.Lock == election.JobLock(m.job) }) {
		m.how(m.replica)
	}
	return m.spy.Claim(ctx, claims)
}

func before(job string, how func(*replica)) func(*scheduler.Config) {
	return func(cfg *scheduler.Config) { cfg.Claimer = mortal{cfg.Claimer.(spy), job, how} }
}

// A child runs although every replica dies after the parent's run has ended, and before the child is claimed: the server keeps the outcome.
// Promise: P5
func TestDeathOfAllBetweenParentAndChild(t *testing.T) {
	for _, tc := range []struct {
		name     string
		edits    []edit
		back     time.Duration
		ticks    string
		outcomes map[string]int
	}{
		{"back in time", []edit{startDeadline(10 * time.Minute)}, 200 * time.Second, "60 180 240 300", map[string]int{"ok": 4}},
		{"back too late", []edit{startDeadline(time.Minute)}, 200 * time.Second, "180 240 300", map[string]int{"ok": 3, "missed down": 1}},
		{"back at once", nil, 65 * time.Second, "60 120 180 240 300", map[string]int{"ok": 5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("a", "* * * * *", 3*time.Second), c.job("last", "", time.Second, append(tc.edits, after("a"))...)}
				c.joinAll(3, jobs, before("last", (*replica).die))
				c.at(tc.back)
				if n := len(c.runs("last")); n != 0 {
					t.Fatalf("%d runs by the dead", n)
				}
				for i := range 3 {
					c.join(fmt.Sprintf("recovery%d", i), jobs)
				}
				c.at(310 * time.Second)
				c.checkChain(jobs[1], 1, tc.ticks)
				want(t, "outcomes", c.outcomes("last"), tc.outcomes)
			})
		})
	}
}

// TestDeathOfTheParentsHolder: its run does not end well, and the child has no tick.
// Promise: P5
func TestDeathOfTheParentsHolder(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("a", "* * * * *", 20*time.Second, lease(3*time.Second)), c.job("last", "", time.Second, after("a"))}
		c.join("first", jobs).wire.deliveries.Wait()
		c.at(65 * time.Second)
		c.replicas[0].die()
		c.joinAll(2, jobs)
		c.at(205 * time.Second)
		c.checkChain(jobs[1], 1, "120 180")
		want(t, "outcomes of the parent", c.outcomes("a"), map[string]int{"ok": 2, "abandoned": 1})
	})
}

// A child runs although there are no events and the replica that ran the parent dies.
// Promise: P5
func TestChildIsFoundWithoutEvents(t *testing.T) {
	testtier.Slow(t)
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("a", "0 0 * * *", 3*time.Second, lease(6*time.Second)), c.job("last", "", time.Second, after("a"))}
		var once sync.Once
		deaf := func(cfg *scheduler.Config) { cfg.GrantEvents = nil }
		c.joinAll(3, jobs, deaf, before("last", func(r *replica) { once.Do(r.die) }))
		c.at(24*time.Hour + 20*time.Second)
		c.checkChain(jobs[1], 1, "86400")
		if r := c.runs("last"); len(r) == 1 && r[0].from.Sub(r[0].Tick) > 12*time.Second {
			t.Errorf("it began after %v", r[0].from.Sub(r[0].Tick))
		}
	})
}

// When the replica that ran the parent drains, the child begins on another replica at once.
// Promise: P5
func TestDrainWakesThoseThatFollow(t *testing.T) {
	testtier.Slow(t)
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("a", "0 0 * * *", 5*time.Second), c.job("last", "", time.Second, after("a"))}
		first := c.join("first", jobs)
		c.at(24*time.Hour + time.Second)
		c.join("second", jobs)
		c.at(24*time.Hour + 2*time.Second)
		first.leave()
		c.at(24*time.Hour + 7*time.Second)
		c.checkChain(jobs[1], 1, "86400")
	})
}

// When the server forgets a parent's tick that replicas have heard of, the child runs all the same, once.
// Promise: P5
func TestServerForgetsBetweenParentAndChild(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("a", "* * * * *", 3*time.Second, lease(5*time.Second)), c.job("last", "", time.Second, after("a"), lease(5*time.Second))}
		seen := 0
		var mu sync.Mutex
		c.joinAll(3, jobs, c.ranked, before("last", func(r *replica) {
			mu.Lock()
			defer mu.Unlock()
			if seen++; seen == 4 {
				if err := r.rdb.FlushAll(context.Background()).Err(); err != nil {
					t.Error(err)
				}
			}
		}))
		c.at(610 * time.Second)
		c.checkRuns("last", 1, 1)
		want(t, "ticks", c.ticks("last"), c.ticks("a"))
	})
}

// The lock of a parent keeps no outcome that all jobs after it have used.
// Promise: P9
func TestOutcomesOfParentsAreForgotten(t *testing.T) {
	testtier.Slow(t)
	length := time.Hour
	if testtier.RaceEnabled {
		length = 15 * time.Minute
	}
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("a", everyTen, time.Second), c.job("b", everyThird, time.Second), c.job("x", "", time.Second, after("a")),
			c.job("last", "", time.Second, after("a", "b"))}
		all := c.joinAll(3, jobs)
		c.at(length + 5*time.Second)
		kept := all[0].rdb.HGet(context.Background(), "cronclave:test:{a}:job", "outcomes").Val()
		if n := strings.Count(kept, ";"); n > 10 {
			t.Errorf("%d outcomes are kept: %s", n, kept)
		}
		want(t, "runs", []int{len(c.runs("x")), len(c.runs("last"))}, []int{int(length / (10 * time.Second)), int(length / (30 * time.Second))})
	})
}

// A job that a reload puts after another runs from that one's next tick on, and no longer once it is removed.
// Promise: P5
func TestReloadOfChains(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, b := c.job("a", everyTen, 6*time.Second), c.job("b", everyTen, time.Second)
		all := c.joinAll(3, []scheduler.Job{a, b})
		c.at(23 * time.Second) // a runs
		reload(t, all, a, b, c.job("last", "", time.Second, after("a")))
		c.at(53 * time.Second)
		reload(t, all, a, b, c.job("last", "", time.Second, after("a", "b")))
		c.at(83 * time.Second)
		reload(t, all, a, b)
		c.at(115 * time.Second)
		want(t, "ticks", c.ticks("last"), []int{30, 40, 60, 70})
		c.checkRuns("last", 1, 1)
		reload(t, all, a, b, c.job("last", "0 0 * * *", time.Second))
		reload(t, all, a, b, c.job("last", "", time.Second, after("b")))
		c.at(125 * time.Second)
		want(t, "ticks", c.ticks("last"), []int{30, 40, 60, 70, 120})
	})
}

// TestFaultyChains refuses `after` that names no job, that has a cycle, or that does not go with another setting.
// Promise: P8
func TestFaultyChains(t *testing.T) {
	run := scheduler.Func(func(context.Context, *scheduler.Run) error { return nil })
	job := func(name string, after ...string) scheduler.Job {
		return scheduler.Job{Name: name, After: after, Runner: run}
	}
	for _, tc := range []struct {
		jobs []scheduler.Job
		want string
	}{
		{[]scheduler.Job{job("a", "b")}, `job a: After names "b", and there is no such job`},
		{[]scheduler.Job{job("a", "a")}, "job a: After forms a cycle: a, a"},
		{[]scheduler.Job{job("a", "b"), job("b", "c"), job("c", "a")}, "job a: After forms a cycle: a, b, c, a"},
		{[]scheduler.Job{{Name: "a", Schedule: []string{"@daily"}, Runner: run}, {Name: "b", After: []string{"a"}, Schedule: []string{"@daily"}, Runner: run}},
			"job b: After does not go with Schedule: the ticks are those of the jobs before"},
		{[]scheduler.Job{{Name: "a", Schedule: []string{"@daily"}, Runner: run}, {Name: "b", After: []string{"a"}, Jitter: 1, Runner: run}},
			"job b: After does not go with Jitter: the ticks are those of the jobs before"},
		{[]scheduler.Job{{Name: "a", Schedule: []string{"@daily"}, Runner: run}, {Name: "b", After: []string{"a"}, CatchUp: scheduler.CatchUp{Policy: scheduler.CatchUpAll}, Runner: run}},
			"job b: After does not go with CatchUp: the ticks are those of the jobs before"},
	} {
		_, err := scheduler.New(scheduler.Config{Jobs: tc.jobs})
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Count(err.Error(), "circle") > 1 {
			t.Errorf("%v\nwant %s", err, tc.want)
		}
	}
}

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

// settler is a claimer of a replica that dies when the server has settled ticks of a job without a run, before it can record that.
type settler struct {
	spy
	job  string
	once *sync.Once
}

func (m settler) Claim(ctx context.Context, claims []election.Claim) []election.Result {
	results := m.spy.Claim(ctx, claims)
	for i, r := range results {
		if claims[i].Lock == election.JobLock(m.job) && r.Verdict == election.Settled {
			m.once.Do(m.replica.die)
		}
	}
	return results
}

// When the replica that settles the ticks of a job dies before it can record them, the others find these ticks decided, and record them.
// Promise: P6
func TestDeathAfterASettlement(t *testing.T) {
	for _, tc := range []struct {
		name    string
		edits   []edit
		settled []int
	}{
		{"of one tick", nil, []int{20}},
		{"of two that come due together", []edit{parallel(2, 1, 2)}, []int{20, 30}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("a", "10,20,30,50 0 0 * * *", time.Second, append(tc.edits, c.slowAt(12*time.Second, 20))...),
					c.job("last", "", 25*time.Second, after("a"))}
				var once sync.Once
				c.joinAll(3, jobs, func(cfg *scheduler.Config) { // without events
					cfg.Claimer, cfg.GrantEvents = settler{cfg.Claimer.(spy), "last", &once}, nil
				})
				c.at(5 * time.Minute)
				for _, tick := range tc.settled {
					want(t, fmt.Sprint("outcome of ", tick), c.told("last")[tick], []string{"skipped overlap"})
				}
				c.checkRuns("last", 1, 1)
			})
		})
	}
}

// lastWord is a journal of a replica that dies when it has recorded that a run of a job has ended well.
type lastWord struct {
	*replica
	job string
}

func (l lastWord) Record(ctx context.Context, records []run.Record) error {
	err := l.replica.Record(ctx, records)
	if slices.ContainsFunc(records, func(r run.Record) bool { return r.Job == l.job && r.Outcome == run.OK }) {
		l.die()
	}
	return err
}

// A child runs although the request that reports the end of its parent is lost, and the holder dies right after it has recorded that end.
// Promise: P5
func TestEndOfAParentIsReportedAgain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		parent := c.job("a", "10 0 0 * * *", time.Second)
		jobs := []scheduler.Job{parent, c.job("last", "", time.Second, after("a"))}
		var first *replica
		jobs[0].Runner = scheduler.Func(func(ctx context.Context, run *scheduler.Run) error {
			defer first.wire.plan(fault{kind: cutAtOnce})
			return parent.Runner.Run(ctx, run).Err
		})
		first = c.replica("first", jobs, func(cfg *scheduler.Config) { cfg.Journal = lastWord{cfg.Journal.(*replica), "a"} })
		first.run()
		c.at(10*time.Second + time.Second/2)
		c.join("second", jobs)
		c.at(2 * time.Minute)
		want(t, "faults", first.wire.count(), 1)
		want(t, "outcomes of the parent", c.outcomes("a"), map[string]int{"ok": 1})
		c.checkChain(jobs[1], 1, "10")
	})
}
