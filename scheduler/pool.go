package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

// Pools: jobs share slots across the cluster.
//
// A run takes a slot of its pool after its tick was granted and before its work begins, first come, first served. It holds the slot through all its
// tries. While it waits, it keeps its slot of the job. If it gets no slot before the start deadline of its tick, the tick is missed (pool).

// A Pool is a semaphore that jobs share across the cluster, first come, first served. A run waits for a slot of the pool until the StartDeadline of
// its tick, and holds the slot until the run ends, through all its tries. The zero value means no pool.
type Pool struct {
	// Name matches [A-Za-z0-9][A-Za-z0-9_-]{0,127}.
	Name string
	// Slots is the number of slots, from 1 to 1000. All jobs of a pool must have the same number.
	Slots int
}

// Pools grants the slots of pools. [election.Elector] implements it.
type Pools interface {
	// AcquirePool waits for a slot until ctx ends. TryAcquirePool does not wait.
	AcquirePool(ctx context.Context, entry election.Entry) (*election.Term, error)
	TryAcquirePool(ctx context.Context, entry election.Entry) (term *election.Term, ok bool, err error)
}

func (p Pool) findFault() string {
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

// poolEntry returns the request of a run for a slot of the job's pool, with the lease length of the job.
func (j *Job) poolEntry(runID string) election.Entry {
	return election.Entry{Pool: j.Pool.Name, Slots: j.Pool.Slots, Lease: j.Lease, Run: runID}
}

// poolMargin is the time before the next tick at which a run stops waiting for its pool, if its start deadline is the next tick. If it waited longer,
// the next tick would find the slot of the job held and be skipped.
const poolMargin = 50 * time.Millisecond

// poolWait returns the maximum wait for the pool of a run without a start deadline.
func (j *Job) poolWait() time.Duration { return orDefault(j.StartDeadline, agenda.LongestAuto) }

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
