package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cronclave/cronclave/election"
)

// ErrHeld means that all slots of a job are held, ErrPoolHeld that all those of its pool are.
var (
	ErrHeld     = errors.New("all slots of the job are held")
	ErrPoolHeld = errors.New("all slots of the job's pool are held")
)

// RunNow runs a job here and now, outside its schedule, and returns what became of it. It holds one of the job's slots, and one of its pool's if it has one,
// or fails with [ErrHeld] or [ErrPoolHeld], and with [ErrElsewhere] where this replica has not the job's labels; without lock it asks nobody, and has no token. When ctx ends the run is stopped. It is for a scheduler that is not running.
func (s *Scheduler) RunNow(ctx context.Context, job string, lock bool) (Record, error) {
	t := s.tasks[job]
	if t == nil {
		return Record{}, fmt.Errorf("job %s: %w", job, ErrNoJob)
	}
	defer s.record()()
	run := &Run{ID: newRunID(), Job: t.Name, Trigger: manual, Slots: t.Parallel, Attempt: 1, returned: true}
	if !lock {
		led := s.exec.lead(ctx, t.Job, run, nil)
		return led.record, led.unstarted
	}
	if s.cfg.Claimer == nil {
		return Record{}, errNoClaimer
	}
	if t.foreign {
		return Record{}, fmt.Errorf("job %s: %w", job, ErrElsewhere)
	}
	term, err := s.claimNow(ctx, t, run.ID)
	if err != nil {
		return Record{}, fmt.Errorf("job %s: %w", job, err)
	}
	if term, err = s.enterNow(ctx, t.Job, term); err != nil {
		return Record{}, fmt.Errorf("job %s: %w", job, err)
	}
	run.Slot, run.Token = term.Slot(), term.Token()
	defer s.overhear()()
	led := s.exec.lead(ctx, t.Job, run, term)
	return led.record, led.unstarted
}

// overhear has the one run told at once that it is to stop; the function it returns ends that, and waits.
func (s *Scheduler) overhear() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var hearing sync.WaitGroup
	if s.cfg.Notices != nil {
		hearing.Go(func() { s.cfg.Notices.Hear(ctx, func([]election.Notice) {}) })
	}
	return func() {
		cancel()
		hearing.Wait()
	}
}

func (s *Scheduler) claimNow(ctx context.Context, t *task, id string) (*election.Term, error) {
	c := election.Claim{Job: t.Name, ID: id, Trigger: manual, Slots: t.Parallel, PerTick: t.PerTick, Lease: t.Lease}
	for tries := 0; ; tries++ {
		switch r := s.cfg.Claimer.Claim(ctx, []election.Claim{c})[0]; r.Verdict {
		case election.Granted:
			return r.Term, nil
		case election.CannotTell:
			const enough = 3
			if tries >= enough || !s.retry.wait(ctx) {
				s.cfg.Claimer.Withdraw(c)
				return nil, r.Err
			}
		case election.Closed:
			return nil, fmt.Errorf("%w for now: the server had forgotten the lock, and is given until %s to learn who holds it", ErrHeld, r.Until.UTC().Format(time.RFC3339))
		default:
			return nil, fmt.Errorf("%w; the lease that ends first, at %s unless it is renewed, is held by %s", ErrHeld, r.Until.UTC().Format(time.RFC3339), r.By)
		}
	}
}
