package scheduler

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/election"
)

// A grant is a tick, or the recovery of an orphan, that was granted to this replica. It occupies a place on this replica until it is over.
type grant struct {
	task      *task
	job       *Job // the configuration of the job at the time of the claim
	term      *election.Term
	of        named
	due       time.Time
	trigger   string
	startBy   time.Time // the latest end of the wait for a slot of the pool; if zero, Job.poolWait bounds the wait
	returned  *tick     // the tick, if its grant arrived too late and is being given back or withdrawn
	unstarted bool      // the run could not start, and the grant was given back
}

// starts executes the grants of this replica, each in a goroutine of its own.
type starts struct {
	*core
	active   runningCounts
	finished chan *grant // receives each grant when it is over
}

// startGrant executes the run of a grant in a new goroutine.
func (s *starts) startGrant(g *grant) {
	run := &Run{ID: g.term.ID(), Job: g.job.Name, Tick: g.of.at, Local: g.of.localTime(), Due: g.due, Trigger: g.trigger, Slot: g.term.Slot(), Slots: g.job.Parallel,
		Attempt: g.term.Attempt(), Token: g.term.Token(), startBy: g.startBy, followed: g.task.isFollowed(g.of.name)}
	s.active.add(g.job.Name, 1)
	go func() {
		defer func() { s.finished <- g }()
		end := s.exec.executeRun(context.Background(), g.job, run, g.term)
		if g.unstarted = end.unstarted != nil; g.unstarted {
			s.exec.holdPlace(g.job, end)
		}
	}()
}

// withdrawForGood withdraws a claim whose run will not begin on this replica. It retries in a new goroutine until Redis has acknowledged the
// withdrawal, or the drain begins.
func (s *starts) withdrawForGood(g *grant, c election.Claim) {
	s.active.add(g.job.Name, 1)
	go func() {
		defer func() { s.finished <- g }()
		s.exec.awaitWithdrawal(s.cfg.Claimer, c)
	}()
}

// awaitWithdrawal withdraws a claim and waits for the acknowledgement. It returns false if the drain begins first: then the withdrawal goes on in the
// background.
func (x *executor) awaitWithdrawal(claimer Claimer, c election.Claim) bool {
	for retry := newBackoff(); ; {
		err := claimer.AwaitWithdrawal(x.draining, c)
		if err == nil {
			return true
		}
		x.log.Debug("claim not withdrawn", "job", c.Job, "run_id", c.ID, "error", err)
		if !retry.Wait(x.draining) {
			claimer.Withdraw(c)
			return false
		}
	}
}

// giveBack gives back a term that was granted too late.
func (s *starts) giveBack(g *grant, term *election.Term) {
	s.active.add(g.job.Name, 1)
	go func() {
		defer func() { s.finished <- g }()
		if err := term.Undo(context.Background()); err != nil {
			s.log.Warn("a tick that was granted too late could not be given back", "job", g.task.Name, "error", err)
		}
	}()
}
