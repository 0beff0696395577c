package run

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cronclave/cronclave/election"
)

// Pools grants the slots of pools. [election.Elector] implements it.
type Pools interface {
	// AcquirePool waits for a slot until ctx ends. TryAcquirePool does not wait.
	AcquirePool(ctx context.Context, entry election.Entry) (*election.Term, error)
	TryAcquirePool(ctx context.Context, entry election.Entry) (term *election.Term, ok bool, err error)
}

// PoolEntry returns the request of a run for a slot of the job's pool, with the lease length of the job.
func (j *Job) PoolEntry(runID string) election.Entry {
	return election.Entry{Pool: j.Pool, Slots: j.PoolSlots, Lease: j.Lease, Run: runID}
}

// errPoolFull is the error of a run that got no slot of its pool in time.
var errPoolFull = errors.New("all slots of the pool were held")

// longWait is the time after which a wait for a pool is logged.
const longWait = time.Second

// enterPool waits for a slot of the job's pool. If the run must not start, why is the reason, and slot must not be used. Otherwise, why is nil.
func (e *execution) enterPool() (slot *election.Term, why error) {
	x := e.x
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, giveUp := context.WithCancelCause(e.stop)
	defer giveUp(nil)
	watching.Go(func() {
		select {
		case <-stopRequested(e.Term):
			giveUp(whyStopped(e.Term))
		case <-ctx.Done():
		}
	})
	for _, end := range []struct {
		of  context.Context
		why error
	}{{e.Term.Context(), ErrLost}, {x.draining, ErrDrain}, {x.Abort, ErrDrain}} {
		defer context.AfterFunc(end.of, func() { giveUp(end.why) })()
	}
	defer time.AfterFunc(longWait, func() { e.log.Info("waiting for a slot of the pool", "pool", e.Job.Pool) }).Stop()
	until := e.StartBy
	if until.IsZero() {
		until = x.Now().Add(e.Job.PoolWait)
	}
	for ctx.Err() == nil && x.Now().Before(until) { // waits again if the clock of Redis was set back during the wait
		waiting, cancel := context.WithTimeoutCause(ctx, until.Sub(x.Now()), errPoolFull)
		slot = e.awaitSlot(waiting)
		cancel()
		if slot != nil {
			break
		}
	}
	switch {
	case ctx.Err() != nil:
		why = context.Cause(ctx)
	case slot == nil || x.Now().After(until):
		why = errPoolFull
	}
	if slot != nil && why != nil {
		_ = slot.Undo(context.Background()) // an error is ignored: Undo goes on in the background, or the lease expires
	}
	return slot, why
}

// awaitSlot acquires a slot, and retries after errors. It returns nil if ctx ends first.
func (e *execution) awaitSlot(ctx context.Context) *election.Term {
	retry := newBackoff()
	for first := true; ; first = false {
		slot, err := e.x.Pools.AcquirePool(ctx, e.Job.PoolEntry(e.Run.ID))
		if err == nil {
			return slot
		}
		if ctx.Err() == nil && first {
			e.log.Error("no slot of the pool can be acquired; trying again", "pool", e.Job.Pool, "error", err)
		}
		if !retry.Wait(ctx) {
			return nil
		}
	}
}

// withholdRun ends the term of a run that must not start. In a drain, it gives the tick back so that another replica runs it. Otherwise, it records
// an outcome. A requested run is always recorded, because no other replica would get the request.
func (e *execution) withholdRun(why error) Record {
	run := &e.Run
	if errors.Is(why, ErrDrain) && run.Trigger != Manual {
		e.giveBack(string(ReasonDrain))
		return Record{}
	}
	e.record = Record{RunID: run.ID, Job: run.Job, Tick: run.Tick, TickLocal: LocalText(run.Local), Trigger: run.Trigger, Replica: e.x.Replica, Finished: e.x.Now()}
	if errors.Is(why, errPoolFull) {
		e.record.Outcome, e.record.Reason = Missed, ReasonPool
	} else {
		e.record.Slot, e.record.Attempt, e.record.Token = new(run.Slot), run.Attempt, run.Token
		e.record.setOutcome(nil, why, false)
	}
	// The record has the id of the run. If this replica dies now, another replica records the run as abandoned under the same id, so there is only one
	// record.
	e.recordEnd()
	e.logUnreleased(e.endTerm(false))
	e.logNotStarted("pool", e.Job.Pool)
	return e.record
}

func (e *execution) logNotStarted(about ...any) {
	verdict := e.record.Verdict()
	e.log.Log(verdict.LogLevel(false), "not started", append(about, "outcome", string(verdict.Outcome), "reason", string(verdict.Reason))...)
}
