package scheduler_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

// A run whose lease can't be renewed is told to stop, and is dead before the lease ends, so that no run starts beside it.
// Promise: P3
func TestLeaseIsLost(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lease time.Duration
		grace time.Duration
		stop  time.Duration // how long before the lease's end it is told to stop: the grace or a third of the lease, and a twentieth
		kill  time.Duration // and must be dead: a twentieth
	}{
		{"default", 30 * time.Second, 10 * time.Second, 11500 * time.Millisecond, 1500 * time.Millisecond},
		{"short grace", 30 * time.Second, 2 * time.Second, 3500 * time.Millisecond, 1500 * time.Millisecond},
		{"long grace", 30 * time.Second, time.Minute, 11500 * time.Millisecond, 1500 * time.Millisecond},
		{"no grace", 30 * time.Second, -1, 1500 * time.Millisecond, 1500 * time.Millisecond},
		{"short lease", time.Second, 10 * time.Second, 383333333, 50 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				job := c.job("j", "*/10 * * * * *", 0, c.stubborn(time.Hour), lease(tc.lease), startDeadline(time.Hour), func(j *scheduler.Job) { j.KillGrace = tc.grace })
				obeys := c.job("j", "*/10 * * * * *", time.Hour, lease(tc.lease), startDeadline(time.Hour), func(j *scheduler.Job) { j.KillGrace = tc.grace })
				r := c.join("r", []scheduler.Job{job})
				c.at(15 * time.Second)
				other := c.join("other", []scheduler.Job{obeys})
				c.at(18 * time.Second)
				ends := other.state("j").Running[0].Expires
				r.wire.silence()
				pass(2 * tc.lease)
				one := c.runs("j")[0]
				// The holder relies on less than the lease, by a hundredth and 2ms.
				trusted := ends.Add(-tc.lease/100 - 2*time.Millisecond)
				if late := one.to.Sub(trusted.Add(-tc.kill)); late > time.Millisecond || late < -10*time.Millisecond {
					t.Errorf("dead %v before the lease's end", ends.Sub(one.to))
				}
				if !one.to.Before(ends) {
					t.Errorf("dead %v after the end of the lease", one.to.Sub(ends))
				}
				if !errors.Is(one.cause, run.ErrLost) {
					t.Errorf("stopped with %v", one.cause)
				}
				// Another one that obeys shows when runs are told to stop.
				pass(20 * time.Second)
				want(t, "told", c.told("j")[10], []string{"lost"})
				r.wire.restore()
				next := c.runs("j")[1]
				want(t, "runs the next one", next.Replica, "other")
				ends = other.state("j").Running[0].Expires
				other.wire.silence()
				pass(2 * tc.lease)
				next = c.runs("j")[1]
				trusted = ends.Add(-tc.lease/100 - 2*time.Millisecond)
				if late := next.to.Sub(trusted.Add(-tc.stop)); late > time.Millisecond || late < -10*time.Millisecond {
					t.Errorf("told to stop %v before the lease's end", ends.Sub(next.to))
				}
				c.checkRuns("j", 1, 1)
			})
		})
	}
}

// When a holder dies the others see it when its lease is over, record the run as abandoned, and take the next tick.
func TestHolderDies(t *testing.T) {
	inCluster(t, func(c *cluster) {
		job := c.job("j", "*/10 * * * * *", 3*time.Second, lease(15*time.Second))
		holder := c.join("holder", []scheduler.Job{job})
		others := []*replica{c.join("a", []scheduler.Job{job}), c.join("b", []scheduler.Job{job})}
		c.at(9 * time.Second)
		for _, r := range others { // so that the holder wins
			r.wire.plan(fault{lateRequest, 100 * time.Millisecond})
		}
		c.at(11 * time.Second)
		lost := c.runs("j")[0]
		want(t, "runs the first tick", lost.Replica, "holder")
		holder.die()
		c.at(24 * time.Second)
		want(t, "told while the lease lasts", c.told("j"), map[int][]string{10: {"running"}, 20: {"skipped overlap"}})
		c.at(25*time.Second + 100*time.Millisecond)
		want(t, "told just after", c.told("j"), map[int][]string{10: {"abandoned"}, 20: {"skipped overlap"}})
		c.at(45 * time.Second)
		want(t, "told in the end", c.told("j"), map[int][]string{10: {"abandoned"}, 20: {"skipped overlap"}, 30: {"ok"}, 40: {"ok"}})
		record := c.words("j")[lost.ID]
		want(t, "the record", []any{record.Replica, record.Token, *record.Slot, record.Attempt, record.Tick}, []any{"holder", lost.Token, 0, 1, lost.Tick})
		c.checkRuns("j", 1, 1)
		want(t, "orphans that are left", len(c.replicas[1].state("j").Orphans), 0)
	})
}

// A sweep finds an orphan that no replica watches, since all that knew of the run were restarted.
func TestSweepFindsOrphans(t *testing.T) {
	inCluster(t, func(c *cluster) {
		rare := c.job("rare", "10 0 0 * * *", time.Hour)
		holder := c.join("holder", []scheduler.Job{rare})
		c.at(15 * time.Second)
		holder.die()
		c.at(5 * time.Minute)
		leader := c.replica("leader", []scheduler.Job{rare})
		want(t, "before", c.outcomes("rare"), map[string]int{"running": 1})
		leader.run() // which looks at everything
		c.at(5*time.Minute + time.Second)
		want(t, "told", c.outcomes("rare"), map[string]int{"abandoned": 1})
		if err := leader.Sweep(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// A sweep finds the orphans of a job that no replica has any more.
// Promise: P6
func TestSweepFindsOrphansOfJobsThatAreGone(t *testing.T) {
	inCluster(t, func(c *cluster) {
		gone, other := c.job("gone", "10 0 0 * * *", time.Hour), c.job("other", "10 0 0 * * *", time.Second)
		holder := c.join("holder", []scheduler.Job{gone})
		c.at(15 * time.Second)
		holder.die()
		leader := c.join("leader", []scheduler.Job{other})
		c.at(5 * time.Minute)
		want(t, "before", c.outcomes("gone"), map[string]int{"running": 1})
		for range 2 {
			if err := leader.Sweep(context.Background(), "gone", "other", "never"); err != nil {
				t.Error(err)
			}
		}
		want(t, "told", c.outcomes("gone"), map[string]int{"abandoned": 1})
		want(t, "orphans that are left", len(leader.state("gone").Orphans), 0)
	})
}

// A grant that becomes known when it is too late to start is given back, and the tick is missed; a grant that is not heard of before its lease is over
// is made again.
func TestLateAnswer(t *testing.T) {
	for _, tc := range []struct {
		name     string
		lease    time.Duration
		deadline time.Duration
		told     string
	}{
		{"in time", 20 * time.Second, 20 * time.Second, "ok"},
		{"too late", 20 * time.Second, 5 * time.Second, "missed redis"},
		{"when the lease is over", 2 * time.Second, 20 * time.Second, "ok"},
		{"too late, when the lease is over", 2 * time.Second, 5 * time.Second, "missed redis"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				r := c.join("r", []scheduler.Job{c.job("j", "*/30 * * * * *", time.Millisecond, startDeadline(tc.deadline), lease(tc.lease))})
				c.at(59 * time.Second)
				r.wire.plan(fault{kind: noReply})
				c.at(60500 * time.Millisecond)
				r.wire.silence()
				c.at(68 * time.Second)
				r.wire.restore()
				c.at(100 * time.Second)
				want(t, "told", c.told("j"), map[int][]string{30: {"ok"}, 60: {tc.told}, 90: {"ok"}})
				want(t, "decided", c.second(r.state("j").Decided), 90)
				c.checkRuns("j", 1, 1)
			})
		})
	}
}

// TestLateAnswerNearTheLeasesEnd: a run whose grant becomes known when it would have to stop already waits for its lease to be renewed.
// Promise: P5
func TestLateAnswerNearTheLeasesEnd(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.join("r", []scheduler.Job{c.job("j", "*/30 * * * * *", 2*time.Second, startDeadline(25*time.Second), lease(20*time.Second))})
		c.at(59 * time.Second)
		r.wire.plan(fault{kind: noReply})
		c.at(60500 * time.Millisecond)
		r.wire.silence()
		c.at(73 * time.Second) // it is to be told to stop 7.7 s before the end
		r.wire.restore()
		c.at(100 * time.Second)
		want(t, "told", c.told("j"), map[int][]string{30: {"ok"}, 60: {"ok"}, 90: {"ok"}})
		late := c.runs("j")[1]
		if from := late.from.Sub(c.start); from < 73*time.Second || from > 80*time.Second || late.cause != nil {
			t.Errorf("began at %v, stopped with %v", from, late.cause)
		}
		c.checkRuns("j", 1, 1)
	})
}

// TestRunOutlivesItsLease: a job may ask to go on when its lease is lost. Then another one starts beside it.
func TestRunOutlivesItsLease(t *testing.T) {
	inCluster(t, func(c *cluster) {
		job := c.job("j", "*/20 * * * * *", 50*time.Second, lease(5*time.Second), func(j *scheduler.Job) { j.OutlivesLease = true })
		r := c.join("r", []scheduler.Job{job})
		c.at(21 * time.Second)
		other := c.join("other", []scheduler.Job{job})
		want(t, "runs the first tick", c.runs("j")[0].Replica, "r")
		want(t, "told its runner of the lease", c.runs("j")[0].Lease, run.Lease(nil))
		r.wire.silence()
		c.at(65 * time.Second)
		r.wire.restore()
		c.at(100 * time.Second)
		runs := c.runs("j")
		want(t, "stopped with", runs[0].cause, error(nil))
		want(t, "lasted", runs[0].to.Sub(runs[0].from), 50*time.Second)
		want(t, "runs the next tick", runs[1].Replica, other.name)
		if runs[1].from.After(runs[0].to) || runs[1].Token <= runs[0].Token {
			t.Errorf("the next run is not beside it, with a greater token: %+v, %+v", runs[0].Run, runs[1].Run)
		}
	})
}

// TestRunKnowsItsLease: a runner can follow the lease of its run.
func TestRunKnowsItsLease(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var mu sync.Mutex
		var told []time.Duration
		runner := scheduler.Func(func(ctx context.Context, run *scheduler.Run) error {
			stop := run.Lease.OnExtend(func(deadline time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, deadline)
			})
			defer stop()
			want(t, "length", run.Lease.Length(), 9*time.Second)
			first := run.Lease.Deadline()
			pass(10 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			if len(told) != 3 || told[0] <= first || told[2] != run.Lease.Deadline() {
				t.Errorf("at first %v, then told %v, at last %v", first, told, run.Lease.Deadline())
			}
			return nil
		})
		c.join("r", []scheduler.Job{{Name: "j", Schedule: []string{"*/30 * * * * *"}, Lease: 9 * time.Second, Runner: runner}})
		c.at(55 * time.Second)
		want(t, "told", c.told("j"), map[int][]string{30: {"ok"}})
	})
}

// lastInspection is a claimer of a replica that dies when the server has settled ticks together, before it can record them.
type lastInspection struct{ spy }

func (l lastInspection) Inspect(ctx context.Context, requests []election.InspectRequest) []election.State {
	states := l.spy.Inspect(ctx, requests)
	for _, q := range requests {
		if !q.SettleThrough.IsZero() {
			l.replica.die()
		}
	}
	return states
}

// When the only replica settles a tick without a run, and is killed before it can record that, the next replica records it.
// Promise: P6
func TestLoneReplicaDiesAfterASettlement(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "10,20 * * * * *", time.Second, c.slowAt(12*time.Second, 10))}
		c.join("dies", jobs, func(cfg *scheduler.Config) {
			cfg.Claimer = settler{cfg.Claimer.(spy), "j", new(sync.Once)}
		})
		c.at(35 * time.Second)
		want(t, "outcome of 20 before", c.told("j")[20], nil)
		lives := c.join("lives", jobs)
		c.at(36 * time.Second)
		want(t, "outcome of 20", c.told("j")[20], []string{"skipped overlap"})
		want(t, "what nobody has told of", len(lives.state("j").Settled), 0)
	})
}

// When the only replica settles ticks together, and is killed before it can record that, the next replica records it. The ticks of a schedule that was
// edited since have one record.
// Promise: P6
func TestLoneReplicaDiesAfterAGap(t *testing.T) {
	for _, tc := range []struct {
		name, schedule string
		told           map[int][]string
	}{
		{"and is started again", "*/10 * * * * *", map[int][]string{20: {"missed down"}, 30: {"missed down"}, 40: {"missed down"}}},
		{"and its schedule is edited", "35 * * * * *", map[int][]string{20: nil, 30: nil, 35: nil, 40: {"missed down"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "*/10 * * * * *", time.Millisecond, startDeadline(5*time.Second))}
				first := c.join("first", jobs)
				c.at(15 * time.Second)
				first.leave()
				c.at(47 * time.Second)
				c.join("dies", jobs, func(cfg *scheduler.Config) { cfg.Claimer = lastInspection{cfg.Claimer.(spy)} })
				c.at(48 * time.Second)
				want(t, "outcome of 40 before", c.told("j")[40], nil)
				lives := c.join("lives", []scheduler.Job{c.job("j", tc.schedule, time.Millisecond)})
				c.at(59 * time.Second)
				for tick, outcomes := range tc.told {
					want(t, "outcome of "+time.Duration(tick*1e9).String(), c.told("j")[tick], outcomes)
				}
				want(t, "what nobody has told of", len(lives.state("j").Settled), 0)
			})
		})
	}
}

// The cluster keeps how a tick was settled until its record is written, and for a while longer, and one acknowledgement covers the ticks that came
// meanwhile.
// Promise: P6
func TestSettlementIsRecorded(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.join("r", []scheduler.Job{c.job("j", "1-5 * * * * *", 20*time.Second)})
		c.at(6 * time.Second)
		want(t, "known at first", len(r.state("j").Settled), 4)
		c.at(13 * time.Second)
		want(t, "known in the end", len(r.state("j").Settled), 0)
		want(t, "outcomes", c.outcomes("j"), map[string]int{"running": 1, "skipped overlap": 4})
	})
}

// TestUnwrittenSettlementIsNotAcknowledged: as long as the journal takes nothing, the cluster goes on knowing.
// Promise: P6
func TestUnwrittenSettlementIsNotAcknowledged(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "1-5 * * * * *", 20*time.Second)}
		r := c.join("r", jobs)
		c.at(1500 * time.Millisecond)
		r.journalHangs()
		c.at(50 * time.Second)
		want(t, "known", len(r.state("j").Settled), 4)
		r.die()
		c.join("next", jobs)
		c.at(59 * time.Second)
		var outcomes []string
		for s := 2; s <= 5; s++ {
			outcomes = append(outcomes, c.told("j")[s]...)
		}
		want(t, "outcomes", strings.Join(outcomes, ", "), "skipped overlap, skipped overlap, skipped overlap, skipped overlap")
	})
}
