package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cronclave/cronclave/election"
)

// Pool is a semaphore that jobs share across the cluster, first come, first served. A run that was granted its tick waits for a slot until the tick's
// StartDeadline, and holds it until it is over, tries and all. The zero value is none.
type Pool struct {
	// Name is [A-Za-z0-9][A-Za-z0-9_-]{0,127}.
	Name string
	// Slots is how many of them there are, from 1 to 1000. Jobs of one pool say the same.
	Slots int
}

// Pools have the slots of pools. [election.Elector] is one.
type Pools interface {
	// Enter waits for a slot until ctx ends, TryEnter does not.
	Enter(ctx context.Context, entry election.Entry) (*election.Term, error)
	TryEnter(ctx context.Context, entry election.Entry) (term *election.Term, ok bool, err error)
}

func (p Pool) fault() string {
	switch {
	case p == Pool{}:
		return ""
	case !jobName.MatchString(p.Name):
		return fmt.Sprintf("Pool.Name is %q: a name is made of letters, digits, _ and -", p.Name)
	case p.Slots < 1 || p.Slots > 1000:
		return fmt.Sprintf("Pool.Slots is %d: it must be from 1 to 1000", p.Slots)
	}
	return ""
}

// poolFault tells that there is nobody to ask for the pools of some jobs.
func (c *Config) poolFault(jobs []Job) error {
	if c.Pools != nil || c.Claimer == nil {
		return nil
	}
	for _, j := range jobs {
		if j.Pool.Name != "" {
			return fmt.Errorf("job %s: it has a Pool, and Config.Pools is missing", j.Name)
		}
	}
	return nil
}

// entry asks for a slot of the job's pool, for as long as its own.
func (j *Job) entry() election.Entry {
	return election.Entry{Pool: j.Pool.Name, Slots: j.Pool.Slots, Lease: j.Lease}
}

// poolMargin is how long before the next tick comes due a run gives its pool up whose deadline lasts until then: else the next one would find the
// job's slot held, and be skipped.
const poolMargin = 50 * time.Millisecond

// startBy is until when a run of a tick that is granted now may wait for its pool. A tick that is recovered may be past its deadline: it waits as a run without
// one does, and so does one that is caught up, though not beyond its last chance: that is for the time in which nobody was there, and may be a day.
func (k *tick) startBy(now time.Time) time.Time {
	switch k.trigger {
	case recovered:
		return time.Time{}
	case caughtUp:
		return earlier(k.deadline, now.Add(k.job.patience()))
	}
	if own := k.deadline.Sub(k.due); k.job.StartDeadline == 0 && own < longestAuto && own > 2*poolMargin {
		return k.deadline.Add(-poolMargin)
	}
	return k.deadline
}

// patience is how long a run waits for its pool that has no deadline of its own.
func (j *Job) patience() time.Duration { return orDefault(j.StartDeadline, longestAuto) }

// errPoolFull ends the wait for a pool at the tick's deadline.
var errPoolFull = errors.New("all slots of the pool were held")

// longWait is after which the log tells of a run that waits.
const longWait = time.Second

// execute leads a run through its life, once it has a slot of its pool, if its job has one. While it waits it holds its slot of the job, and its place on this
// replica. There is no final record if the tick was given back.
func (x *executor) execute(ctx context.Context, job *Job, run *Run, term *election.Term) led {
	failpoint("granted", run)
	if job.Pool.Name == "" || term == nil {
		return x.lead(ctx, job, run, term)
	}
	slot, why := x.enter(ctx, job, run, term)
	if why != nil {
		return led{record: x.withhold(job, run, term, why)}
	}
	return x.lead(ctx, job, run, term.With(slot))
}

// enter waits for a slot of the pool, unless the run is not to start any more: then it tells why.
func (x *executor) enter(ctx context.Context, job *Job, run *Run, term *election.Term) (slot *election.Term, why error) {
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	watching.Go(func() {
		select {
		case <-stopping(term):
			giveUp(whyStopped(term))
		case <-ctx.Done():
		}
	})
	for _, end := range []struct {
		of  context.Context
		why error
	}{{term.Context(), ErrLost}, {x.draining, ErrDrain}, {x.abort, ErrDrain}} {
		defer context.AfterFunc(end.of, func() { giveUp(end.why) })()
	}
	defer time.AfterFunc(longWait, func() { x.logger(run).Info("waiting for a slot of the pool", "pool", job.Pool.Name) }).Stop()
	until := run.startBy
	if until.IsZero() {
		until = x.now().Add(job.patience())
	}
	for ctx.Err() == nil && x.now().Before(until) { // again where the server's clock was set back meanwhile
		waiting, cancel := context.WithTimeoutCause(ctx, until.Sub(x.now()), errPoolFull)
		slot = x.lineUp(waiting, job, run)
		cancel()
		if slot != nil {
			break
		}
	}
	switch {
	case ctx.Err() != nil:
		why = context.Cause(ctx)
	case slot == nil || x.now().After(until):
		why = errPoolFull
	}
	if slot != nil && why != nil {
		_ = slot.Return(context.Background()) // it goes on in the background, or ends by itself
	}
	return slot, why
}

// lineUp waits until ctx ends, whatever the server says; then there is no slot.
func (x *executor) lineUp(ctx context.Context, job *Job, run *Run) *election.Term {
	var retry backoff
	for first := true; ; first = false {
		slot, err := x.pools.Enter(ctx, job.entry())
		if err == nil {
			return slot
		}
		if ctx.Err() == nil && first {
			x.logger(run).Error("the pool can't be entered; trying again", "pool", job.Pool.Name, "error", err)
		}
		if !retry.wait(ctx) {
			return nil
		}
	}
}

// withhold ends the term of a run that does not start. The tick of a replica that drains is given back: others run it. A run that somebody asked for
// is not: nobody would ask again.
func (x *executor) withhold(job *Job, run *Run, term *election.Term, why error) Record {
	log := x.logger(run)
	if errors.Is(why, ErrDrain) && run.Trigger != manual {
		x.giveBack(term, run, reasonDrain)
		return Record{}
	}
	record := Record{RunID: run.ID, Job: run.Job, Tick: run.Tick, Trigger: run.Trigger, Replica: x.replica, Finished: x.now()}
	if errors.Is(why, errPoolFull) {
		record.Outcome, record.Reason = Missed, "pool"
	} else {
		record.Slot, record.Attempt, record.Token = run.Slot, run.Attempt, run.Token
		record.conclude(Result{}, why, false)
	}
	x.announce(record, job.Lease/4) // under the run's id: if this replica dies now the others find the run abandoned, which is the same record
	if err := x.part(job, run, term, &record, false); err != nil {
		log.Warn("the lease could not be released; it ends by itself", "error", err)
	}
	log.Log(record.Outcome.level(record.Reason, false), "not started", "pool", job.Pool.Name, "outcome", string(record.Outcome), "reason", record.Reason)
	return record
}

// giveBack opens the tick again, and has the others told, who believe it taken.
func (x *executor) giveBack(term *election.Term, run *Run, reason string) {
	log := x.logger(run)
	if err := term.Return(context.Background()); err != nil {
		log.Warn("a tick that was not started could not be given back", "reason", reason, "error", err)
		return
	}
	log.Info("not started, and given back", "reason", reason)
	if x.notices == nil {
		return
	}
	if err := x.notices.Tell(context.Background(), []*election.Term{term}, nil); err != nil {
		log.Debug("the others were not told; they see it when the lease would have ended", "error", err)
	}
}

// enterNow takes a slot of the pool for a run here and now. It waits for nobody.
func (s *Scheduler) enterNow(ctx context.Context, job *Job, term *election.Term) (*election.Term, error) {
	if job.Pool.Name == "" {
		return term, nil
	}
	slot, ok, err := s.cfg.Pools.TryEnter(ctx, job.entry())
	if ok {
		return term.With(slot), nil
	}
	_ = term.Return(context.Background()) // it goes on in the background, or ends by itself
	if err == nil {
		err = fmt.Errorf("%w: %s", ErrPoolHeld, job.Pool.Name)
	}
	return nil, err
}

// reopen takes up ticks that were granted, and given back before their start: whoever was told that they were taken asks for them again. They do not skip.
func (s *Scheduler) reopen(t *task, st election.State, now time.Time) {
	reason := reasonLate // the replica that gave it back may tell why
	if t.Pool.Name != "" {
		reason = "pool"
	}
	if t.chained() { // then the jobs before it tell which of them are its ticks
		if len(st.Open) > 0 {
			s.check(t, now)
		}
		return
	}
	if s.exec.breaker.why() != "" {
		reason = "capacity"
	}
	for _, at := range st.Open {
		s.reopenTick(t, at, reason, now)
	}
}

// reopenTick takes up one tick, unless it is open here.
func (s *Scheduler) reopenTick(t *task, at time.Time, reason string, now time.Time) {
	if _, open := t.find(at); open || t.unknown || t.dismissed || len(t.open) >= maxOpen || !t.names(at) {
		return
	}
	k := s.agenda.open(t, instantsOf(t.spec, at), now)
	k.waited, k.reason = true, reason
	if k.wasCaughtUp(now) {
		k.reason = "down"
	}
}
