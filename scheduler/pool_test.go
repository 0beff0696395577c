package scheduler_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler"
)

func pool(slots int) edit {
	return func(j *scheduler.Job) { j.Pool = scheduler.Pool{Name: "warehouse", Slots: slots} }
}

// pooled is three jobs that share a pool. Their ticks are half a second apart from each other.
func (c *cluster) pooled(slots int, length time.Duration, edits ...edit) []scheduler.Job {
	var jobs []scheduler.Job
	for i, name := range []string{"a", "b", "c"} {
		jobs = append(jobs, c.job(name, fmt.Sprintf("%d 0 0 * * *", 10+i), length, append(edits, pool(slots))...))
	}
	return jobs
}

// all is what ran of some jobs, in the order of their starts.
func (c *cluster) all(jobs []scheduler.Job) []ran {
	var out []ran
	for _, j := range jobs {
		out = append(out, c.runs(j.Name)...)
	}
	slices.SortFunc(out, func(x, y ran) int { return x.from.Compare(y.from) })
	return out
}

// checkPool demands that no more runs of some jobs were at once than a pool has slots.
func (c *cluster) checkPool(jobs []scheduler.Job, slots int) {
	c.t.Helper()
	all := c.all(jobs)
	for i, r := range all {
		beside := 0
		for _, o := range all[:i] {
			if o.to.IsZero() || o.to.After(r.from) {
				beside++
			}
		}
		if beside >= slots {
			c.t.Errorf("P3: %s began beside %d others of its pool", r.Job, beside)
		}
	}
}

// enter takes a slot of the pool, as somebody else may.
func (r *replica) enter(slots int, lease time.Duration) *election.Term {
	r.cluster.t.Helper()
	elector, err := election.New(election.Config{Locks: r.locks})
	if err != nil {
		r.cluster.t.Fatal(err)
	}
	term, ok, err := elector.TryAcquirePool(context.Background(), election.Entry{Pool: "warehouse", Slots: slots, Lease: lease})
	if !ok {
		r.cluster.t.Fatal("the pool is full: ", err)
	}
	return term
}

// TestPoolIsShared has three jobs that come due one after the other: as many run at once as their pool has slots, in the order in which they came.
// Promise: P3
func TestPoolIsShared(t *testing.T) {
	for _, tc := range []struct {
		slots int
		order string
		from  []time.Duration
		end   map[string]int
	}{
		{1, "a b c", []time.Duration{10 * time.Second, 30 * time.Second, 50 * time.Second}, map[string]int{"ok": 3}},
		{2, "a b c", []time.Duration{10 * time.Second, 11 * time.Second, 30 * time.Second}, map[string]int{"ok": 3}},
		{3, "a b c", []time.Duration{10 * time.Second, 11 * time.Second, 12 * time.Second}, map[string]int{"ok": 3}},
	} {
		t.Run(fmt.Sprint(tc.slots, " slots"), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := c.pooled(tc.slots, 20*time.Second)
				replicas := c.joinAll(3, jobs)
				c.at(25 * time.Second)
				want(t, "holders of the last job", len(replicas[0].state("c").Running), 1) // it waits, or runs
				if tc.slots == 1 && len(c.words("c")) > 0 {
					t.Error("what waits has a record: ", c.words("c"))
				}
				c.at(2 * time.Minute)
				var order []string
				var from []time.Duration
				for _, r := range c.all(jobs) {
					order, from = append(order, r.Job), append(from, r.from.Sub(c.start).Truncate(time.Second))
				}
				want(t, "order", strings.Join(order, " "), tc.order)
				want(t, "starts", from, tc.from)
				c.checkPool(jobs, tc.slots)
				for _, j := range jobs {
					want(t, "outcomes of "+j.Name, c.outcomes(j.Name), map[string]int{"ok": 1})
					c.checkRuns(j.Name, 1, 1)
				}
			})
		})
	}
}

// A tick whose pool is full until its deadline is missed, once, and ticks that come due meanwhile or later go by the policies of the job.
// Promise: P6
func TestPoolIsFullUntilTheDeadline(t *testing.T) {
	for _, tc := range []struct {
		name  string
		held  time.Duration // how long somebody else has the pool
		edits []edit
		told  map[int][]string
	}{
		{"its own deadline", time.Minute, []edit{startDeadline(5 * time.Second)},
			map[int][]string{10: {"missed pool"}, 30: {"missed pool"}, 50: {"missed pool"}}},
		{"until the next tick", time.Minute, nil, map[int][]string{10: {"missed pool"}, 30: {"missed pool"}, 50: {"ok"}}},
		{"the next one is skipped meanwhile", time.Minute, []edit{startDeadline(25 * time.Second)},
			map[int][]string{10: {"missed pool"}, 30: {"skipped overlap"}, 50: {"ok"}}},
		{"or queued", time.Minute, []edit{startDeadline(25 * time.Second), queued},
			map[int][]string{10: {"missed pool"}, 30: {"missed pool"}, 50: {"ok"}}},
		{"in time", 12 * time.Second, []edit{startDeadline(5 * time.Second)}, map[int][]string{10: {"ok"}, 30: {"ok"}, 50: {"ok"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				job := c.job("j", "10-50/20 0 0 * * *", time.Second, append(tc.edits, pool(1))...)
				replicas := c.joinAll(3, []scheduler.Job{job})
				slot := replicas[0].enter(1, 5*time.Second)
				c.at(tc.held)
				_ = slot.End(context.Background())
				c.at(5 * time.Minute)
				want(t, "what was told", c.told("j"), tc.told)
				want(t, "rows that are left", len(replicas[0].state("j").Running), 0)
				c.checkRuns("j", 1, 1)
			})
		})
	}
}

// A draining replica gives back a run that waits for a pool, and another replica runs it as soon as it hears of that.
// Promise: P5
func TestDrainGivesBackWhatWaitsForAPool(t *testing.T) {
	for _, tc := range []struct {
		name  string
		abort bool
		edits []func(*scheduler.Config)
		by    time.Duration // when the others have it again
	}{
		{"drain", false, nil, 15*time.Second + 200*time.Millisecond}, // the news, and a claim whose request is late
		{"a second signal", true, nil, 15*time.Second + 200*time.Millisecond},
		{"nobody is told", false, []func(*scheduler.Config){func(cfg *scheduler.Config) { cfg.GrantEvents = nil }}, 26 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				job := c.job("j", "10 0 0 * * *", time.Second, pool(1), lease(15*time.Second))
				leaver := c.join("leaver", []scheduler.Job{job}, tc.edits...)
				slot := leaver.enter(1, time.Minute)
				others := []*replica{c.join("x", []scheduler.Job{job}, tc.edits...), c.join("y", []scheduler.Job{job}, tc.edits...)}
				c.at(9 * time.Second)
				for _, r := range others { // so that the leaver wins
					r.wire.plan(fault{lateRequest, 100 * time.Millisecond})
				}
				c.at(15 * time.Second)
				want(t, "holder before", leaver.state("j").Running[0].Holder, "leaver")
				leaver.stop()
				if tc.abort {
					leaver.Abort()
				}
				<-leaver.done
				want(t, "end of the drain", time.Since(c.start).Truncate(100*time.Millisecond), 15*time.Second)
				c.at(tc.by)
				if held := others[0].state("j").Running; len(held) != 1 || held[0].Holder == "leaver" {
					t.Errorf("held by %v", held)
				}
				want(t, "what was told", len(c.words("j")), 0)
				c.at(40 * time.Second)
				_ = slot.End(context.Background())
				c.at(45 * time.Second)
				want(t, "ticks that ran", c.ticks("j"), []int{10})
				want(t, "outcomes", c.outcomes("j"), map[string]int{"ok": 1})
			})
		})
	}
}

// TestGivenBackIsMissedWhenNobodyIsThere: a tick that was given back has an outcome, also if all replicas were down at its deadline.
// Promise: P6
func TestGivenBackIsMissedWhenNobodyIsThere(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "10 0 0 * * *", time.Second, pool(1), startDeadline(30*time.Second))}
		leaver := c.join("leaver", jobs)
		leaver.enter(1, time.Minute)
		c.at(15 * time.Second)
		leaver.stop()
		<-leaver.done
		c.at(time.Minute)
		c.join("next", jobs)
		c.at(time.Minute + time.Second)
		want(t, "what was told", c.told("j"), map[int][]string{10: {"missed pool"}})
	})
}

// A tick that was given back keeps its outcome if ticks after it are settled together, as no replica was there.
// Promise: P6
func TestGivenBackIsMissedBesideOthers(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "*/10 0 0 * * *", time.Second, pool(1))}
		leaver := c.join("leaver", jobs)
		leaver.enter(1, time.Minute)
		c.at(15 * time.Second)
		leaver.stop()
		<-leaver.done
		c.at(45 * time.Second)
		c.joinAll(2, jobs)
		c.at(49 * time.Second)
		want(t, "what was told", c.told("j"), map[int][]string{10: {"missed pool"}, 20: {"missed down"}, 30: {"missed down"}})
	})
}

// TestPoolOutlivesItsHolder: when a replica dies its slot is free at the end of the lease, and what it had granted and not begun is abandoned.
func TestPoolOutlivesItsHolder(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := c.pooled(1, 3*time.Second, lease(10*time.Second))
		holder := c.join("holder", jobs[:1])
		waiter := c.join("waiter", jobs[1:2])
		last := c.join("last", jobs[2:])
		c.at(11*time.Second + 500*time.Millisecond)
		holder.die()
		waiter.die()
		c.at(19 * time.Second)
		want(t, "the last one runs", len(c.runs("c")), 0)
		c.at(22 * time.Second)
		want(t, "the last one runs", len(c.runs("c")), 1)
		c.join("recorder", jobs)
		c.at(40 * time.Second)
		want(t, "of the one that waited", c.told("b"), map[int][]string{11: {"abandoned"}})
		want(t, "of the last one", c.told("c"), map[int][]string{12: {"ok"}})
		want(t, "orphans that are left", len(last.state("b").Orphans), 0)
	})
}

// TestPoolIsLost: a run whose slot of the pool can't be renewed is stopped before that ends, as for its own lease.
// Promise: P3
func TestPoolIsLost(t *testing.T) {
	for _, tc := range []struct {
		name  string
		edits []edit
		told  string
		alive bool
	}{
		{"stop", nil, "lost", false},
		{"continue", []edit{func(j *scheduler.Job) { j.OutlivesLease = true }}, "running", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "10 0 0 * * *", time.Hour, append(tc.edits, pool(1), lease(9*time.Second))...)}
				r := c.join("r", jobs)
				c.at(15 * time.Second)
				want(t, "runs", len(c.runs("j")), 1)
				// The server forgets the pool, and somebody else has it before the next renewal.
				other := c.replica("other", nil)
				other.rdb.Del(context.Background(), "cronclave:test:{warehouse}:pool")
				other.enter(1, time.Minute)
				c.at(19 * time.Second)
				if run := c.runs("j")[0]; run.to.IsZero() != tc.alive {
					t.Errorf("alive until %v", run.to)
				}
				want(t, "told", c.told("j")[10], []string{tc.told})
				want(t, "slots of the job", len(r.state("j").Running) == 1, tc.alive)
			})
		})
	}
}

// TestPoolIsAskedForAgain: a server that does not answer keeps a run waiting, not from running.
// Promise: P5
func TestPoolIsAskedForAgain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.join("r", []scheduler.Job{c.job("j", "10 0 0 * * *", time.Second, pool(1), lease(time.Minute))})
		r.wire.plan(fault{}, fault{kind: noReply}, fault{kind: cutAtReply}, fault{kind: cutAtOnce})
		c.at(20 * time.Second)
		want(t, "faults", r.wire.count(), 4)
		want(t, "what was told", c.told("j"), map[int][]string{10: {"ok"}})
	})
}

// TestLeaseIsLostWhileAPoolIsAwaited: the tick may have been taken for abandoned by others, so the run does not start any more.
// Promise: P6
func TestLeaseIsLostWhileAPoolIsAwaited(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "10 0 0 * * *", time.Second, pool(1), lease(5*time.Second), startDeadline(time.Hour))}
		r := c.join("r", jobs)
		other := c.replica("other", nil)
		slot := other.enter(1, time.Minute)
		c.at(15 * time.Second)
		r.wire.silence()
		c.at(25 * time.Second)
		r.wire.restore()
		c.at(30 * time.Second)
		_ = slot.End(context.Background())
		c.at(time.Minute)
		want(t, "ticks that ran", len(c.ticks("j")), 0)
		want(t, "what was told", c.told("j"), map[int][]string{10: {"lost"}})
		other.enter(1, time.Minute) // it is free
	})
}

// TestPoolOfManyJobs has twenty jobs come due at once, over and over, on replicas that come and go.
// Promise: P3
func TestPoolOfManyJobs(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.quiet = true
		var jobs []scheduler.Job
		for i := range 20 {
			jobs = append(jobs, c.job(fmt.Sprint("j", i), "*/10 0-1 0 * * *", time.Second, pool(3), lease(5*time.Second)))
		}
		replicas := c.joinAll(3, jobs)
		c.at(35*time.Second + 500*time.Millisecond)
		replicas[0].leave()
		c.at(62*time.Second + 500*time.Millisecond)
		replicas[1].die()
		c.at(4 * time.Minute)
		c.checkPool(jobs, 3+3) // the runs of the replica that died go on beside the others: a function cannot be killed
		count := map[string]int{}
		for _, j := range jobs {
			for verdict, n := range c.outcomes(j.Name) {
				count[verdict] += n
			}
			c.checkOneOutcome(j.Name, seconds(10, 110, 10))
		}
		t.Log(count)
		if count["ok"] < 200 || count["abandoned"] > 20 {
			t.Errorf("outcomes: %v", count)
		}
	})
}

// checkOneOutcome demands that each tick has one outcome.
func (c *cluster) checkOneOutcome(job string, ticks []int) {
	c.t.Helper()
	told := c.told(job)
	for _, tick := range ticks {
		if len(told[tick]) != 1 || told[tick][0] == "running" {
			c.t.Errorf("P6: %s %d: %v", job, tick, told[tick])
		}
	}
}

// RunNow does not wait for a pool, and leaves nothing behind.
func TestRunNowNeedsAPool(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.replica("r", []scheduler.Job{c.job("j", "10 0 0 1 1 *", time.Second, pool(1))})
		slot := r.enter(1, time.Minute)
		_, err := r.RunNow(context.Background(), "j", true)
		want(t, "while it is full", err, fmt.Errorf("job j: %w: warehouse", scheduler.ErrPoolHeld))
		want(t, "rows that are left", len(r.state("j").Running), 0)
		record, err := r.RunNow(context.Background(), "j", false)
		want(t, "without a lock", fmt.Sprint(record.Outcome, err), "ok<nil>")
		_ = slot.End(context.Background())
		record, err = r.RunNow(context.Background(), "j", true)
		want(t, "when it is free", fmt.Sprint(record.Outcome, err), "ok<nil>")
		r.enter(1, time.Minute)
	})
}

func TestPoolsAreValidated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := scheduler.Job{Name: "j", Schedule: []string{"@daily"}, Runner: scheduler.Func(func(context.Context, *scheduler.Run) error { return nil })}
		for _, tc := range []struct {
			pool scheduler.Pool
			want string
		}{
			{scheduler.Pool{Name: "a b", Slots: 1}, `job j: Pool.Name is "a b": a name is made of letters, digits, _ and -`},
			{scheduler.Pool{Slots: 1}, `job j: Pool.Name is "": a name is made of letters, digits, _ and -`},
			{scheduler.Pool{Name: "a"}, "job j: Pool.Slots is 0: it must be from 1 to 1000"},
			{scheduler.Pool{Name: "a", Slots: 1001}, "job j: Pool.Slots is 1001: it must be from 1 to 1000"},
			{scheduler.Pool{Name: "a", Slots: 1}, "job j: it has a Pool, and Config.Pools is missing"},
		} {
			job.Pool = tc.pool
			_, err := scheduler.New(scheduler.Config{Claimer: &election.Elector{}, Jobs: []scheduler.Job{job}})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%+v: %v, want %s", tc.pool, err, tc.want)
			}
		}
	})
}
