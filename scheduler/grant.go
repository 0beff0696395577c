package scheduler

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/election"
)

// A grant is a tick, or the recovery of an orphan, that this replica was granted. It has a place until it is over.
type grant struct {
	task      *task
	job       *Job // the job when the claim was made
	term      *election.Term
	of        named
	due       time.Time
	trigger   string
	startBy   time.Time // until when the run may wait for a slot of its pool; zero: as long as the job allows
	returned  *tick     // the tick whose grant became known too late, and is being given back or withdrawn; may be nil
	unstarted bool      // the run could not begin, and the grant was given back
}

// starts runs the grants of this replica, each in a goroutine of its own.
type starts struct {
	*core
	active   runningCounts
	finished chan *grant // receives each grant when it is over
}

// startGrant runs a grant in a goroutine of its own.
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

// withdrawForGood withdraws a claim for good, because its run will not begin here. It tries until the cluster has acknowledged the withdrawal, or the drain
// begins.
func (s *starts) withdrawForGood(g *grant, c election.Claim) {
	s.active.add(g.job.Name, 1)
	go func() {
		defer func() { s.finished <- g }()
		s.exec.awaitWithdrawal(s.cfg.Claimer, c)
	}()
}

// awaitWithdrawal reports whether a claim was withdrawn for good. It returns false if the drain begins first; the withdrawal then goes on in the
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

// giveBack returns a term that was granted too late.
func (s *starts) giveBack(g *grant, term *election.Term) {
	s.active.add(g.job.Name, 1)
	go func() {
		defer func() { s.finished <- g }()
		if err := term.Undo(context.Background()); err != nil {
			s.log.Warn("a tick that was granted too late could not be given back", "job", g.task.Name, "error", err)
		}
	}()
}
