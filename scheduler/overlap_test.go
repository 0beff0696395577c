package scheduler_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
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

func replaces(j *scheduler.Job) { j.Overlap = scheduler.OverlapReplace }

func killGrace(d time.Duration) edit { return func(j *scheduler.Job) { j.KillGrace = d } }

// dying takes so long to stop when it is told to, unless it is killed before.
func (c *cluster) dying(length, death time.Duration) edit {
	return func(j *scheduler.Job) {
		j.Runner = scheduler.Func(func(ctx context.Context, run *scheduler.Run) error {
			seen := c.began(run)
			defer func() { c.ended(seen, context.Cause(ctx)) }()
			select {
			case <-time.After(length):
				return nil
			case <-ctx.Done():
			}
			select {
			case <-time.After(death):
			case <-run.Kill.Done():
			}
			return nil
		})
	}
}

// starts is when runs of a job began, in seconds of the test.
func (c *cluster) starts(job string) []int {
	var out []int
	for _, r := range c.runs(job) {
		out = append(out, c.second(r.from))
	}
	return out
}

// TestReplace runs a job every ten seconds for half a minute, and checks which ticks ran, when, and the records of each.
// Promise: P3, P5, P6, P9
func TestReplace(t *testing.T) {
	testtier.Slow(t)
	const forever = time.Hour
	for _, tc := range []struct {
		name     string
		replicas int
		edits    func(c *cluster) []edit
		parallel int
		starts   []int // a second has room for the message, or the next look
		told     map[int][]string
	}{
		{"one replica, at once", 1, func(c *cluster) []edit { return []edit{c.dying(forever, 0)} }, 1,
			[]int{10, 20, 30},
			map[int][]string{10: {"canceled replaced"}, 20: {"canceled replaced"}, 30: {"running"}}},
		{"three replicas, at once", 3, func(c *cluster) []edit { return []edit{c.dying(forever, 0)} }, 1,
			[]int{10, 20, 30},
			map[int][]string{10: {"canceled replaced"}, 20: {"canceled replaced"}, 30: {"running"}}},
		{"a run that is over by then is left alone", 2, func(c *cluster) []edit { return []edit{c.dying(9*time.Second, 0)} }, 1,
			[]int{10, 20, 30},
			map[int][]string{10: {"ok"}, 20: {"ok"}, 30: {"running"}}},
		{"the new one starts when the old one is dead", 1, func(c *cluster) []edit { return []edit{c.dying(forever, 4*time.Second)} }, 1,
			[]int{10, 24, 34},
			map[int][]string{10: {"canceled replaced"}, 20: {"canceled replaced"}, 30: {"running"}}},
		{"which is at the end of its grace at the latest", 1, func(c *cluster) []edit {
			return []edit{c.dying(forever, forever), killGrace(3 * time.Second)}
		}, 1, []int{10, 23, 33},
			map[int][]string{10: {"canceled replaced"}, 20: {"canceled replaced"}, 30: {"running"}}},
		{"a tick that waits for that gives way to the next", 2, func(c *cluster) []edit {
			return []edit{c.dying(forever, 14*time.Second), killGrace(15 * time.Second), startDeadline(time.Minute)}
		}, 1, []int{10, 34},
			map[int][]string{10: {"canceled replaced"}, 20: {"skipped overlap"}, 30: {"running"}}},
		{"also where its deadline is then", 2, func(c *cluster) []edit {
			return []edit{c.dying(forever, 14*time.Second), killGrace(15 * time.Second)}
		}, 1, []int{10, 34},
			map[int][]string{10: {"canceled replaced"}, 20: {"skipped overlap"}, 30: {"running"}}},
		{"or is missed if that comes first", 2, func(c *cluster) []edit {
			return []edit{c.dying(forever, 6*time.Second), startDeadline(2 * time.Second)}
		}, 1, []int{10, 30},
			map[int][]string{10: {"canceled replaced"}, 20: {"missed slots"}, 30: {"running"}}},
		{"the oldest of two slots", 2, func(c *cluster) []edit { return []edit{c.dying(forever, 0), parallel(2, 1, 1)} }, 2,
			[]int{10, 20, 30},
			map[int][]string{10: {"canceled replaced"}, 20: {"running"}, 30: {"running"}}},
		{"two slots on one replica", 1, func(c *cluster) []edit { return []edit{c.dying(forever, 4*time.Second), parallel(2, 1, 2)} }, 2,
			[]int{10, 20, 34},
			map[int][]string{10: {"canceled replaced"}, 20: {"running"}, 30: {"running"}}},
		{"both slots of a fan-out", 2, func(c *cluster) []edit { return []edit{c.dying(forever, 0), parallel(2, 2, 1)} }, 2,
			[]int{10, 10, 20, 20, 30, 30},
			map[int][]string{10: {"canceled replaced", "canceled replaced"}, 20: {"canceled replaced", "canceled replaced"}, 30: {"running", "running"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.joinAll(tc.replicas, []scheduler.Job{c.job("j", "*/10 * * * * *", 0, append(tc.edits(c), replaces, lease(3*time.Second))...)})
				c.at(38 * time.Second)
				starts := c.starts("j")
				slices.Sort(starts)
				want(t, "starts", starts, tc.starts)
				want(t, "outcomes", c.told("j"), tc.told)
				c.checkRuns("j", tc.parallel, 2)
			})
		})
	}
}

// No replica stops the run of a dead replica, so the tick that replaces it starts when the lease has ended.
// Promise: P5
func TestReplacedRunOfADeadReplica(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "*/10 * * * * *", 0, c.dying(time.Hour, 4*time.Second), replaces, lease(3*time.Second))}
		first := c.join("r0", jobs)
		c.at(15 * time.Second)
		c.join("r1", jobs)
		c.at(21 * time.Second) // it has been told, and is not dead yet
		first.die()
		c.at(29 * time.Second)
		runs := c.runs("j")
		if len(runs) != 2 || runs[1].Replica != "r1" || c.second(runs[1].from) < 22 || c.second(runs[1].from) > 24 {
			t.Errorf("%+v", runs)
		}
		want(t, "outcomes", c.told("j"), map[int][]string{10: {"abandoned replaced"}, 20: {"running"}})
	})
}

// Ticks that waited for the server are run one after the other, though each finds the slot held by the one before it; a run that was on all the time
// makes room.
// Promise: P5
func TestBacklogReplacesOnlyWhatRanBefore(t *testing.T) {
	inCluster(t, func(c *cluster) {
		replicas := c.joinAll(2, []scheduler.Job{c.job("j", "*/10 * * * * *", 4*time.Second, replaces, lease(time.Minute), startDeadline(time.Minute))})
		c.at(9 * time.Second)
		held := replicas[0].hold("j")
		c.at(15 * time.Second)
		want(t, "why the holder is to stop", held.StopReason(), election.StopReplaced)
		for _, r := range replicas {
			r.wire.silence()
		}
		c.at(45 * time.Second)
		for _, r := range replicas {
			r.wire.restore()
		}
		if err := held.End(context.Background()); err != nil {
			t.Fatal(err)
		}
		c.at(63 * time.Second)
		want(t, "ticks that ran", c.ticks("j"), []int{10, 20, 30, 40, 50})
		want(t, "outcomes", c.outcomes("j"), map[string]int{"ok": 4, "running": 1})
		c.checkRuns("j", 1, 1)
	})
}

// TestServerForgetsWhoIsReplaced: the request is lost with the server's memory, and made again once the row is back.
// Promise: P5
func TestServerForgetsWhoIsReplaced(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.joinAll(2, []scheduler.Job{c.job("j", "0 * * * * *", 0, c.dying(time.Hour, 0), replaces, lease(3*time.Second))})[0]
		c.at(119*time.Second + 900*time.Millisecond)
		if err := r.rdb.FlushAll(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		c.at(130 * time.Second)
		want(t, "outcomes", c.told("j"), map[int][]string{60: {"canceled replaced"}, 120: {"running"}})
		c.checkRuns("j", 1, 1)
	})
}

// cancel stops the runs of a job, or one, as from elsewhere. It returns how many were told.
func (r *replica) cancel(job, run string) int {
	r.cluster.t.Helper()
	elector, err := election.New(election.Config{Locks: r.locks})
	if err != nil {
		r.cluster.t.Fatal(err)
	}
	told, err := elector.Cancel(context.Background(), job, run)
	if err != nil {
		r.cluster.t.Fatal(err)
	}
	return len(told)
}

// TestCancel cancels a run in each phase of its life: its lease is released after its end, with outcome `canceled`.
// Promise: P3, P6
func TestCancel(t *testing.T) {
	for _, tc := range []struct {
		name  string
		edits func(c *cluster) []edit
		told  string
		ends  time.Duration // when the run is over, after it was canceled
		tries int
	}{
		{"a run", func(c *cluster) []edit { return []edit{c.dying(time.Hour, 0)} }, "canceled user", 0, 1},
		{"within its grace", func(c *cluster) []edit { return []edit{c.dying(time.Hour, 4*time.Second)} }, "canceled user", 4 * time.Second, 1},
		{"at the end of its grace", func(c *cluster) []edit { return []edit{c.dying(time.Hour, time.Hour)} }, "canceled user", 10 * time.Second, 1},
		{"a run that outlives its lease", func(c *cluster) []edit {
			return []edit{c.dying(time.Hour, 0), func(j *scheduler.Job) { j.OutlivesLease = true }}
		}, "canceled user", 0, 1},
		{"between two tries", func(c *cluster) []edit {
			return []edit{c.failing(9, time.Second, false), retry(9, time.Hour, time.Hour)}
		}, "canceled user", 0, 1},
		{"a try", func(c *cluster) []edit {
			return []edit{c.failing(9, time.Hour, false), retry(9, time.Second, time.Second)}
		},
			"canceled user", 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				replicas := c.joinAll(2, []scheduler.Job{c.job("j", "30 * * * * *", 0, append(tc.edits(c), lease(3*time.Second))...)})
				c.at(40 * time.Second)
				want(t, "told", replicas[0].cancel("j", ""), 1)
				c.at(40*time.Second + tc.ends - 50*time.Millisecond)
				if tc.ends > 0 {
					want(t, "still held", len(replicas[0].state("j").Running), 1)
				}
				c.at(40*time.Second + tc.ends + 50*time.Millisecond)
				want(t, "released", len(replicas[0].state("j").Running), 0)
				want(t, "tries", len(c.runs("j")), tc.tries)
				want(t, "outcome", c.told("j"), map[int][]string{30: {tc.told}})
				want(t, "told, when nothing runs", replicas[1].cancel("j", ""), 0)
				c.at(95 * time.Second)
				want(t, "runs of the next tick", len(c.told("j")[90]), 1)
			})
		})
	}
}

// TestCancelOneRun: of several runs only the one that is named, and none that is not there.
func TestCancelOneRun(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.join("r0", []scheduler.Job{c.job("j", "*/10 * * * * *", time.Hour, parallel(2, 1, 2))})
		c.at(25 * time.Second)
		runs := c.runs("j")
		want(t, "told of a stranger", r.cancel("j", "stranger"), 0)
		want(t, "told", r.cancel("j", runs[1].ID), 1)
		c.at(26 * time.Second)
		want(t, "outcomes", c.told("j"), map[int][]string{10: {"running"}, 20: {"canceled user"}})
		if cause := c.runs("j")[1].cause; !errors.Is(cause, run.ErrCanceled) {
			t.Errorf("cause: %v", cause)
		}
	})
}

// A run outside the schedule hears at once that it is canceled, too.
func TestCancelOfARunNow(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.replica("r0", []scheduler.Job{c.job("j", "0 0 * * *", 0, c.dying(time.Hour, 0))})
		over := make(chan run.Record)
		go func() {
			record, err := r.RunNow(context.Background(), "j", true)
			if err != nil {
				t.Error(err)
			}
			over <- record
		}()
		pass(time.Second)
		began := time.Now()
		want(t, "told", r.cancel("j", ""), 1)
		record := <-over
		want(t, "outcome", verdict(record), "canceled user")
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestFaultyOverlap(t *testing.T) {
	_, err := scheduler.New(scheduler.Config{Jobs: []scheduler.Job{{Name: "j", Schedule: []string{"@daily"}, Overlap: "allow",
		Runner: scheduler.Func(func(context.Context, *scheduler.Run) error { return nil })}}})
	if err == nil {
		t.Error("a policy that is none is taken")
	}
}

// A run that was told to stop, and whose holder dies before it has, is not recovered.
// Promise: P5
func TestStoppedRunIsNotRecovered(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit edit
		stop func(r *replica)
		told map[int][]string
	}{
		{"replaced", replaces, func(*replica) {}, map[int][]string{10: {"abandoned replaced"}, 20: {"running"}}},
		{"canceled", queued, func(r *replica) { r.cancel("j", "") }, map[int][]string{10: {"abandoned user"}, 20: {"running"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "10,20 0 0 * * *", 0, c.dying(time.Hour, 4*time.Second), recovers(3), lease(3*time.Second), tc.edit)}
				first := c.join("r0", jobs)
				c.at(15 * time.Second)
				c.join("r1", jobs)
				c.at(20500 * time.Millisecond)
				tc.stop(c.replicas[1])
				c.at(21 * time.Second) // it has been told, and is not dead yet
				first.die()
				c.at(40 * time.Second)
				want(t, "outcomes", c.told("j"), tc.told)
				want(t, "orphans", len(c.replicas[1].state("j").Orphans), 0)
			})
		})
	}
}

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
