package scheduler

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/election"
)

// grant is a tick, or an orphan's recovery, that this replica was granted. It has a place until it is over.
type grant struct {
	task      *task
	job       *Job // as it was when the claim was made
	term      *election.Term
	of        named
	due       time.Time
	trigger   string
	startBy   time.Time // until when it may wait for a slot of its pool; zero: as long as the job says
	returned  *tick     // if it became known too late to start, and is being given back or withdrawn
	unstarted bool      // its run was not able to begin, and the grant was given back
}

// starts has the runs that go on here, each in a goroutine of its own.
type starts struct {
	*core
	active   runningCounts
	finished chan *grant // a grant that is over
}

// start runs a grant in a goroutine of its own.
func (s *starts) start(g *grant) {
	run := &Run{ID: g.term.ID(), Job: g.job.Name, Tick: g.of.at, Local: g.of.local(), Due: g.due, Trigger: g.trigger, Slot: g.term.Slot(), Slots: g.job.Parallel,
		Attempt: g.term.Attempt(), Token: g.term.Token(), startBy: g.startBy, followed: g.task.follows(g.of.name)}
	s.active.add(g.job.Name, 1)
	go func() {
		defer func() { s.finished <- g }()
		end := s.exec.execute(context.Background(), g.job, run, g.term)
		if g.unstarted = end.unstarted != nil; g.unstarted {
			s.exec.holdPlace(g.job, end)
		}
	}()
}

// withdraw withdraws a claim whose run will not begin here, for good. It goes on until the cluster has acknowledged that, or the drain begins.
func (s *starts) withdraw(g *grant, c election.Claim) {
	s.active.add(g.job.Name, 1)
	go func() {
		defer func() { s.finished <- g }()
		s.exec.awaitWithdrawal(s.cfg.Claimer, c)
	}()
}

// awaitWithdrawal reports whether a claim is withdrawn for good. If the drain begins before, the withdrawal goes on in the background.
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

// giveBack returns a term that came too late.
func (s *starts) giveBack(g *grant, term *election.Term) {
	s.active.add(g.job.Name, 1)
	go func() {
		defer func() { s.finished <- g }()
		if err := term.Return(context.Background()); err != nil {
			s.log.Warn("a tick that was granted too late could not be given back", "job", g.task.Name, "error", err)
		}
	}()
}
