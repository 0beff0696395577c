package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/run"
)

// The errors of [Scheduler.RunNow] if there is no free slot.
var (
	ErrHeld     = errors.New("all slots of the job are held")
	ErrPoolHeld = errors.New("all slots of the job's pool are held")
)

// RunNow runs a job at once on this replica, outside its schedule, and returns the record of the run. With lock, the run holds a slot of the job, and
// of the job's pool if it has one. RunNow then returns [ErrHeld] or [ErrPoolHeld] if no slot is free, and [ErrElsewhere] if this replica lacks labels
// that the job requires. Without lock, RunNow does not call Redis, and the run has no token. When ctx ends, the run is stopped. RunNow must not be
// called while [Scheduler.Run] is running.
func (s *Scheduler) RunNow(ctx context.Context, job string, lock bool) (run.Record, error) {
	t := s.tasks[job]
	if t == nil {
		return run.Record{}, fmt.Errorf("job %s: %w", job, ErrNoJob)
	}
	defer s.exec.StartRecorder()()
	g := &run.Grant{Job: t.Rules.Runs, Run: run.Run{ID: newRunID(), Job: t.Name, Trigger: run.Manual, Slots: t.Parallel, Attempt: 1}, Foreground: true}
	if !lock {
		end := s.exec.Execute(ctx, g)
		return end.Record, end.Unstarted
	}
	if s.cfg.Claimer == nil {
		return run.Record{}, errNoClaimer
	}
	if t.Elsewhere {
		return run.Record{}, fmt.Errorf("job %s: %w", job, ErrElsewhere)
	}
	term, err := s.claimNow(ctx, t, g.Run.ID)
	if err == nil {
		g.Term, err = s.enterNow(ctx, g.Job, term)
	}
	if err != nil {
		return run.Record{}, fmt.Errorf("job %s: %w", job, err)
	}
	g.Run.Slot, g.Run.Token = g.Term.Slot(), g.Term.Token()
	defer s.subscribeOnce()()
	end := s.exec.Execute(ctx, g)
	return end.Record, end.Unstarted
}

// subscribeOnce subscribes to events, so that a request to stop the run arrives at once. end cancels the subscription and waits for its goroutine.
func (s *Scheduler) subscribeOnce() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var hearing sync.WaitGroup
	if s.cfg.GrantEvents != nil {
		hearing.Go(func() { s.cfg.GrantEvents.Subscribe(ctx, func([]election.GrantEvent) {}) })
	}
	return func() {
		cancel()
		hearing.Wait()
	}
}

func (s *Scheduler) claimNow(ctx context.Context, t *task, id string) (*election.Term, error) {
	c := election.Claim{Lock: election.JobLock(t.Name), ID: id, Trigger: run.Manual, Slots: t.Parallel, Lease: t.Lease}
	retry := newBackoff()
	for tries := 0; ; tries++ {
		switch r := s.cfg.Claimer.Claim(ctx, []election.Claim{c})[0]; r.Verdict {
		case election.Granted:
			return election.TermOf(r), nil
		case election.CannotTell:
			const enough = 3
			if tries >= enough || !retry.Wait(ctx) {
				s.cfg.Claimer.Withdraw(c)
				return nil, r.Err
			}
		case election.Unheard:
			s.cfg.Claimer.Withdraw(c)
			c.ID = newRunID()
		case election.Closed:
			return nil, fmt.Errorf("%w for now: Redis lost the lock's data, and grants nothing until %s, so that a holder can restore it", ErrHeld, r.Until.UTC().Format(time.RFC3339))
		default:
			return nil, fmt.Errorf("%w; the lease that ends first, at %s unless it is renewed, is held by %s", ErrHeld, r.Until.UTC().Format(time.RFC3339), r.Holder)
		}
	}
}

func (s *Scheduler) enterNow(ctx context.Context, job *run.Job, term *election.Term) (*election.Term, error) {
	if job.Pool == "" {
		return term, nil
	}
	slot, ok, err := s.cfg.Pools.TryAcquirePool(ctx, job.PoolEntry(term.ID()))
	if ok {
		return term.With(slot), nil
	}
	_ = term.Undo(context.Background()) // an error is ignored: Undo goes on in the background, or the lease expires
	if err == nil {
		err = fmt.Errorf("%w: %s", ErrPoolHeld, job.Pool)
	}
	return nil, err
}
