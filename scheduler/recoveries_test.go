package scheduler_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

// hanging runs until it is stopped in its first attempts, and for two seconds in later ones.
func (c *cluster) hanging(attempts int) edit {
	return func(j *scheduler.Job) {
		j.Runner = scheduler.Func(func(ctx context.Context, run *scheduler.Run) error {
			seen := c.began(run)
			defer func() { c.ended(seen, context.Cause(ctx)) }()
			length := 2 * time.Second
			if run.Attempt <= attempts {
				length = time.Hour
			}
			select {
			case <-time.After(length):
			case <-ctx.Done():
			}
			return context.Cause(ctx)
		})
	}
}

func recovers(most int) edit {
	return func(j *scheduler.Job) { j.Recover = scheduler.Recover{Max: most} }
}

// attemptsOf returns the records of the attempts of a tick, in their order.
func (c *cluster) attemptsOf(job string, second int) []string {
	var all []string
	for _, r := range c.words(job) {
		if c.second(r.Tick) == second {
			all = append(all, strings.TrimSpace(fmt.Sprint(r.Attempt, " ", r.Trigger, " ", verdict(r))))
		}
	}
	slices.Sort(all)
	return all
}

// checkRecoveries compares each run with the one before: another attempt of the same tick.
func (c *cluster) checkRecoveries(job string, attempts int) {
	c.t.Helper()
	runs := c.runs(job)
	if len(runs) != attempts {
		c.t.Fatalf("%d runs, want %d: %+v", len(runs), attempts, runs)
	}
	for i, r := range runs[1:] {
		died := runs[i]
		if r.Attempt != died.Attempt+1 || r.Token <= died.Token || r.ID == died.ID || r.Replica == died.Replica || !r.Tick.Equal(died.Tick) || r.Trigger != "recovery" ||
			died.to.IsZero() || r.from.Before(died.to) {
			c.t.Errorf("after %+v came %+v", died.Run, r.Run)
		}
	}
}

// TestRecovery interrupts a run: its tick is run again by exactly one of the others, no later than a second after the lease of a holder that died, and at
// once where the holder can still say that it goes.
// Promise: P5
func TestRecovery(t *testing.T) {
	const length = 9 * time.Second // of the lease, renewed for the last time at 42s
	for _, tc := range []struct {
		name      string
		interrupt func(r *replica) // at 44s
		by        time.Duration    // when the next attempt has begun
		told      string
	}{
		{"died", func(r *replica) { r.die() }, 52 * time.Second, "abandoned"},
		{"drained", func(r *replica) { r.stop() }, 44100 * time.Millisecond, "canceled drain"},
		{"aborted in its drain", func(r *replica) { r.stop(); r.Abort() }, 44100 * time.Millisecond, "canceled drain"},
		{"lost its lease", func(r *replica) { r.wire.silence() }, 52 * time.Second, "lost"},
		{"lost its lease for a while", func(r *replica) {
			r.wire.silence()
			time.AfterFunc(6500*time.Millisecond, r.wire.restore) // it is told to stop before, and leaves what it has lost
		}, 52 * time.Second, "lost"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				job := c.job("j", "30 0 0 * * *", 0, c.hanging(1), recovers(3), lease(length))
				holder := c.join("holder", []scheduler.Job{job}, drainTimeout(3*time.Second))
				c.at(31 * time.Second)
				for _, name := range []string{"a", "b", "c"} {
					c.join(name, []scheduler.Job{job})
				}
				c.at(44 * time.Second)
				tc.interrupt(holder)
				c.at(tc.by)
				c.checkRecoveries("j", 2)
				c.at(2 * time.Minute)
				c.checkRecoveries("j", 2)
				want(t, "told", c.attemptsOf("j", 30), []string{"1 schedule " + tc.told, "2 recovery ok"})
				st := c.replicas[1].state("j")
				want(t, "rows and orphans that are left", len(st.Running)+len(st.Orphans), 0)
			})
		})
	}
}

// A run is recovered no more often than its job allows, counted together with tries of retry, and not at all without recover.
// Promise: P9
func TestRecoveryHasAnEnd(t *testing.T) {
	for _, tc := range []struct {
		name   string
		killed time.Duration // the holder, whichever replica it is; and again every ten seconds
		edits  func(c *cluster) []edit
		told   []string
	}{
		{"none", 35 * time.Second, func(*cluster) []edit { return nil }, []string{"1 schedule abandoned"}},
		{"two more", 35 * time.Second, func(*cluster) []edit { return []edit{recovers(2)} },
			[]string{"1 schedule abandoned", "2 recovery abandoned", "3 recovery abandoned"}},
		{"tries count", 35 * time.Second, func(c *cluster) []edit {
			return []edit{c.failsFirst(1), recovers(2), retry(1, time.Second, time.Second)}
		}, []string{"1 schedule failed try 1", "2 schedule abandoned", "3 recovery abandoned"}},
		{"recoveries count, and a pause is part of a run", 31 * time.Second, func(c *cluster) []edit {
			return []edit{c.failsFirst(9), recovers(1), retry(1, 4*time.Second, 4*time.Second)}
		}, []string{"1 schedule abandoned", "2 recovery failed try 2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				job := c.job("j", "30 0 0 * * *", 0, append([]edit{c.hanging(99), lease(3 * time.Second)}, tc.edits(c)...)...)
				for i := range 5 {
					c.join(fmt.Sprint("r", i), []scheduler.Job{job})
				}
				for i := range 5 {
					c.at(tc.killed + time.Duration(i)*10*time.Second)
					c.killHolder("j")
				}
				c.at(2 * time.Minute)
				want(t, "told", c.attemptsOf("j", 30), tc.told)
				for _, r := range c.replicas {
					if !r.dead {
						want(t, "orphans that are left", len(r.state("j").Orphans), 0)
					}
				}
			})
		})
	}
}

// failsFirst fails the first attempts at once, and hangs in later ones.
func (c *cluster) failsFirst(attempts int) edit {
	return func(j *scheduler.Job) {
		c.hanging(99)(j)
		hangs := j.Runner
		j.Runner = scheduler.Func(func(ctx context.Context, run *scheduler.Run) error {
			if run.Attempt <= attempts {
				c.ended(c.began(run), nil)
				return fmt.Errorf("try %d", run.Attempt)
			}
			return hangs.Run(ctx, run).Err
		})
	}
}

// killHolder has the replica die that holds a job.
func (c *cluster) killHolder(job string) {
	i := slices.IndexFunc(c.replicas, func(r *replica) bool { return !r.dead })
	for _, run := range c.replicas[i].state(job).Running {
		for _, r := range c.replicas {
			if r.name == run.Holder {
				r.die()
			}
		}
	}
}

// An adoption without an answer is repeated with the same id; a replica that leaves gives it back, and another adopts the orphan.
// Promise: P5
func TestAdoptionThatIsNotHeardOf(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		t.Run(fmt.Sprint("leaves ", leaves), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				job := c.job("j", "30 0 0 * * *", 0, c.hanging(1), recovers(1), lease(9*time.Second))
				holder := c.join("holder", []scheduler.Job{job})
				c.at(31 * time.Second)
				recovery := c.join("recovery", []scheduler.Job{job})
				holder.die()
				c.at(38 * time.Second)
				recovery.wire.plan(fault{kind: none}, fault{kind: noReply}) // the look, and the claim
				c.at(39500 * time.Millisecond)
				want(t, "faults that came true", recovery.wire.count(), 2)
				want(t, "runs so far", len(c.runs("j")), 1)
				if leaves {
					recovery.stop()
					<-recovery.done
					c.join("next", []scheduler.Job{job})
				}
				c.at(2 * time.Minute)
				c.checkRecoveries("j", 2)
				want(t, "told", c.attemptsOf("j", 30), []string{"1 schedule abandoned", "2 recovery ok"})
			})
		})
	}
}

// Full replicas leave an orphan to the others, and no replica abandons it meanwhile, nor do those that may not run the job.
// Promise: P5
func TestOrphanWaitsForAPlace(t *testing.T) {
	inCluster(t, func(c *cluster) {
		zone := func(name string) func(*scheduler.Config) {
			return func(cfg *scheduler.Config) { cfg.Labels, cfg.MaxRunning = scheduler.Labels{"zone": name}, 1 }
		}
		job := c.job("j", "30 0 0 * * *", 0, c.hanging(1), recovers(1), lease(3*time.Second), func(j *scheduler.Job) { j.Where = scheduler.Labels{"zone": "x"} })
		busy := c.job("busy", "31 0 0 * * *", 39*time.Second)
		holder := c.join("holder", []scheduler.Job{job}, zone("x"))
		c.at(30500 * time.Millisecond)
		full := c.join("full", []scheduler.Job{job, busy}, zone("x"))
		c.join("foreign", []scheduler.Job{job}, zone("y"))
		c.at(32 * time.Second)
		holder.die()
		c.at(69 * time.Second)
		want(t, "runs so far", len(c.runs("j")), 1)
		want(t, "orphans", len(full.state("j").Orphans), 1)
		c.at(71 * time.Second)
		c.checkRecoveries("j", 2)
		want(t, "runs the second attempt", c.runs("j")[1].Replica, "full")
	})
}

// TestRecoveryOnTheSameReplica: there is no other, and its next tick is far.
// Promise: P5
func TestRecoveryOnTheSameReplica(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.join("only", []scheduler.Job{c.job("j", "30 0 0 * * *", 0, c.hanging(1), recovers(1), lease(9*time.Second))})
		c.at(32 * time.Second)
		r.wire.silence()
		c.at(65 * time.Second)
		r.wire.restore()
		c.at(70 * time.Second)
		want(t, "told", c.attemptsOf("j", 30), []string{"1 schedule lost", "2 recovery ok"})
	})
}

// A sweep has orphans adopted that no replica that may run them has noticed.
// Promise: P5
func TestSweepHasOrphansAdopted(t *testing.T) {
	inCluster(t, func(c *cluster) {
		elsewhere := func(j *scheduler.Job) { j.Where = scheduler.Labels{"zone": "x"} }
		job := c.job("j", "30 0 0 * * *", 0, c.hanging(1), recovers(1), lease(3*time.Second))
		holder := c.join("holder", []scheduler.Job{job})
		c.at(31 * time.Second)
		r := c.join("r", []scheduler.Job{c.job("j", "30 0 0 * * *", 0, c.hanging(1), recovers(1), elsewhere)})
		holder.die()
		c.at(40 * time.Second)
		if err := r.Reload(context.Background(), []scheduler.Job{job}); err != nil {
			t.Fatal(err)
		}
		c.at(45 * time.Second)
		want(t, "runs so far", len(c.runs("j")), 1)
		if err := r.Sweep(context.Background()); err != nil {
			t.Error(err)
		}
		c.at(50 * time.Second)
		c.checkRecoveries("j", 2)
	})
}

// TestOrphanOfAJobThatIsNotRecoveredAnyMore is abandoned.
// Promise: P6
func TestOrphanOfAJobThatIsNotRecoveredAnyMore(t *testing.T) {
	inCluster(t, func(c *cluster) {
		job := c.job("j", "30 0 0 * * *", 0, c.hanging(1), recovers(1), lease(3*time.Second))
		busy := c.job("busy", "31 0 0 * * *", time.Hour)
		holder := c.join("holder", []scheduler.Job{job})
		c.at(30500 * time.Millisecond)
		full := c.join("full", []scheduler.Job{job, busy}, func(cfg *scheduler.Config) { cfg.MaxRunning = 1 })
		c.at(32 * time.Second)
		holder.die()
		c.at(40 * time.Second)
		want(t, "orphans", len(full.state("j").Orphans), 1)
		job.Recover = scheduler.Recover{}
		if err := full.Reload(context.Background(), []scheduler.Job{job, busy}); err != nil {
			t.Fatal(err)
		}
		c.at(41 * time.Second)
		want(t, "orphans", len(full.state("j").Orphans), 0)
		want(t, "told", c.attemptsOf("j", 30), []string{"1 schedule abandoned"})
	})
}

func TestRecoveryThatCannotBe(t *testing.T) {
	for _, j := range []scheduler.Job{{Recover: scheduler.Recover{Max: -1}}, {Recover: scheduler.Recover{Max: 101}},
		{Recover: scheduler.Recover{Max: 1}, Parallel: 2, PerTick: 2}} {
		j.Name, j.Schedule, j.Runner = "j", []string{"@daily"}, scheduler.Func(nil)
		if _, err := scheduler.New(scheduler.Config{Jobs: []scheduler.Job{j}}); err == nil || !strings.Contains(err.Error(), "Recover") {
			t.Errorf("%+v: %v", j.Recover, err)
		}
	}
}

// abandonments is how often a run was logged as abandoned.
func (c *cluster) abandonments() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.records {
		if r.Outcome == run.Abandoned {
			n++
		}
	}
	return n
}

// TestOrphanOfABusyJob is not passed by the ticks that wait for the same slot; where ticks replace each other newer ones have displaced it.
// Promise: P5, P9
func TestOrphanOfABusyJob(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit edit
		tick int           // its lease ends when another tick waits for the slot, or has it
		died time.Duration // its holder
		told []string
		most int // ticks that were not run
	}{
		{"queue", queued, 30, 43 * time.Second, []string{"1 schedule abandoned", "2 recovery ok"}, 5},
		{"replace", replaces, 20, 26 * time.Second, []string{"1 schedule abandoned"}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.joinAll(3, []scheduler.Job{c.job("j", everyTen, 12*time.Second, tc.edit, recovers(3), lease(5*time.Second))}, c.ranked)
				c.at(tc.died)
				c.killHolder("j")
				c.at(2 * time.Minute)
				told := c.attemptsOf("j", tc.tick)
				for i := range told { // the lease ends as the next tick comes due: that may have had the run told to stop a millisecond before
					told[i] = strings.TrimSuffix(told[i], " replaced")
				}
				want(t, "told", told, tc.told)
				if n := c.abandonments(); n > 2 {
					t.Errorf("two replicas have told %d times that it was abandoned", n)
				}
				missed := 0
				for _, r := range c.words("j") {
					if r.Outcome == run.Skipped || r.Outcome == run.Missed {
						missed++
					}
				}
				if missed > tc.most {
					t.Errorf("%d ticks were not run", missed)
				}
				for _, r := range c.replicas {
					if !r.dead {
						want(t, "orphans that are left", len(r.state("j").Orphans), 0)
					}
				}
			})
		})
	}
}
