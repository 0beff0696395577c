package scheduler

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cronclave/cronclave/election"
)

// errPoolFull is the reason if a run got no slot of its pool before the start deadline.
var errPoolFull = errors.New("all slots of the pool were held")

// longWait is the time after which a wait for a pool is logged.
const longWait = time.Second

// enterPool waits for a slot of the job's pool. why is nil if the run has a slot; otherwise it is the reason for which the run must not start.
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
	for ctx.Err() == nil && x.now().Before(until) { // waits again if the clock of Redis was set back during the wait
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
		_ = slot.Undo(context.Background()) // an error is ignored: Undo goes on in the background, or the lease expires
	}
	return slot, why
}

// lineUp waits for a slot until ctx ends, and retries after errors. It returns nil if it got no slot.
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

// withholdRun ends the term of a run that must not start. In a drain, it gives the tick back so that another replica runs it. It does not give back a
// requested run, because no other replica would get the request.
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
	// The record has the id of the run. If this replica dies now, another replica records the run as abandoned under the same id, so there is only one
	// record.
	x.recordEnd(record, job.Lease/4)
	run.life.moveTo(phase{name: phaseRecorded})
	if err := x.endTerm(job, run, term, &record, false); err != nil {
		log.Warn("the lease could not be released; it ends by itself", "error", err)
	}
	run.life.moveTo(phase{name: phaseReleased})
	log.Log(record.Outcome.logLevel(record.Reason, false), "not started", "pool", job.Pool.Name, "outcome", string(record.Outcome), "reason", record.Reason)
	return record
}
