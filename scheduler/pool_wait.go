package scheduler

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cronclave/cronclave/election"
)

// errPoolFull is the cause of the end of a wait for a pool at the tick's deadline.
var errPoolFull = errors.New("all slots of the pool were held")

// longWait is the time after which the wait of a run for its pool is logged.
const longWait = time.Second

// enterPool waits for a slot of the pool. why is the reason if the run must not start any more.
func (x *executor) enterPool(ctx context.Context, job *Job, run *Run, term *election.Term) (slot *election.Term, why error) {
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	watching.Go(func() {
		select {
		case <-stopRequested(term):
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
	defer time.AfterFunc(longWait, func() { x.runLogger(run).Info("waiting for a slot of the pool", "pool", job.Pool.Name) }).Stop()
	until := run.startBy
	if until.IsZero() {
		until = x.now().Add(job.poolWait())
	}
	for ctx.Err() == nil && x.now().Before(until) { // again if the server's clock was set back meanwhile
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
		_ = slot.Undo(context.Background()) // the return goes on in the background, or the lease ends by itself
	}
	return slot, why
}

// lineUp waits for a slot until ctx ends, whatever errors the server returns. It returns nil if there is none by then.
func (x *executor) lineUp(ctx context.Context, job *Job, run *Run) *election.Term {
	retry := newBackoff()
	for first := true; ; first = false {
		slot, err := x.pools.AcquirePool(ctx, job.poolEntry(run.ID))
		if err == nil {
			return slot
		}
		if ctx.Err() == nil && first {
			x.runLogger(run).Error("no slot of the pool can be acquired; trying again", "pool", job.Pool.Name, "error", err)
		}
		if !retry.Wait(ctx) {
			return nil
		}
	}
}

// withholdRun ends the term of a run that does not start. The tick of a draining replica is given back, and another replica runs it. A requested run is
// not given back, since it would not be requested again.
func (x *executor) withholdRun(job *Job, run *Run, term *election.Term, why error) Record {
	log := x.runLogger(run)
	if errors.Is(why, ErrDrain) && run.Trigger != manual {
		x.giveBack(term, run, reasonDrain)
		run.life.moveTo(phase{name: phaseReleased})
		return Record{}
	}
	record := Record{RunID: run.ID, Job: run.Job, Tick: run.Tick, Local: run.Local, Trigger: run.Trigger, Replica: x.replica, Finished: x.now()}
	if errors.Is(why, errPoolFull) {
		record.Outcome, record.Reason = Missed, "pool"
	} else {
		record.Slot, record.Attempt, record.Token = run.Slot, run.Attempt, run.Token
		record.setOutcome(Result{}, why, false)
	}
	// It has the id of the run: if this replica dies now, the others record the run as abandoned under the same id.
	x.recordEnd(record, job.Lease/4)
	run.life.moveTo(phase{name: phaseRecorded})
	if err := x.endTerm(job, run, term, &record, false); err != nil {
		log.Warn("the lease could not be released; it ends by itself", "error", err)
	}
	run.life.moveTo(phase{name: phaseReleased})
	log.Log(record.Outcome.logLevel(record.Reason, false), "not started", "pool", job.Pool.Name, "outcome", string(record.Outcome), "reason", record.Reason)
	return record
}
