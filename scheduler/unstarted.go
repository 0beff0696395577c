package scheduler

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/backoff"
)

// retryStart is the time for which this replica repeats the failed start of a second or later try. No other replica can run this try, because this
// replica holds the lease.
const retryStart = time.Minute

// unstartedTry handles a try whose work could not begin. It waits and returns true if the try is to be started again, with the same attempt number.
// It returns false for the first try of a run that another replica can run. last is the try before, or nil.
func (x *executor) unstartedTry(ctx context.Context, run *Run, term *election.Term, last *pastTry, since time.Time, why error) (again bool) {
	until := run.insist
	if last != nil {
		until = since.Add(retryStart)
	}
	if !x.now().Before(until) {
		return false
	}
	pause := min(x.backoffs.nextPause(run.Job, why), until.Sub(x.now()))
	run.Logger.Info("not started; trying again", "attempt", run.Attempt, "error", why, "retry_in", pause.Round(time.Millisecond).String())
	return x.restBetweenTries(ctx, term, pause)
}

// undoGrant ends the term of a run that never began. It gives the grant back and publishes an event, so that another replica runs the tick. A run
// that no other replica can begin is recorded instead.
func (x *executor) undoGrant(job *Job, run *Run, term *election.Term, record *Record, end tryEnd) ending {
	switch {
	case term == nil:
	case run.insist.IsZero():
		x.giveBack(term, run, end.why.Error())
	default:
		return ending{record: x.abandonRequest(job, run, term, record), unreturned: end.unreturned}
	}
	run.life.moveTo(phase{name: phaseReleased})
	return ending{unstarted: end.why, unreturned: end.unreturned}
}

// abandonRequest records the outcome of a requested run that never began, because the request expired or the run was stopped.
func (x *executor) abandonRequest(job *Job, run *Run, term *election.Term, record *Record) Record {
	record.Started, record.Finished = time.Time{}, x.now()
	switch why := whyStopped(term); {
	case why != nil:
		record.setOutcome(Result{}, why, false)
	case term.Context().Err() != nil:
		record.setOutcome(Result{}, ErrLost, false)
	case x.draining.Err() != nil, x.abort.Err() != nil:
		record.setOutcome(Result{}, ErrDrain, false)
	default:
		record.Outcome, record.Reason = Missed, "capacity"
	}
	x.recordEnd(*record, job.Lease/4)
	run.life.moveTo(phase{name: phaseRecorded})
	if err := term.End(context.Background()); err != nil {
		run.Logger.Warn("the lease could not be released; it ends by itself", "error", err)
	}
	run.life.moveTo(phase{name: phaseReleased})
	run.Logger.Log(record.Outcome.logLevel(record.Reason, false), "not started", "outcome", string(record.Outcome), "reason", record.Reason)
	return *record
}

// holdPlace keeps the place of an unstarted run occupied until its Runner, which may hang, has returned. If this replica can start other programs,
// holdPlace also waits for a growing pause, during which other replicas claim the job. If it can start none, the breaker opens.
func (x *executor) holdPlace(job *Job, end ending) {
	var pause time.Duration
	if !x.breaker.noteFailedStart(end.unstarted) {
		pause = x.backoffs.nextPause(job.Name, end.unstarted)
		x.log.Warn("cannot start the job; it is left to the other replicas", "job", job.Name, "error", end.unstarted, "retry_in", pause.String())
	}
	backoff.Sleep(x.draining, pause)
	select {
	case <-end.unreturned:
	case <-x.draining.Done():
	}
}

// giveBack gives back the grant of a tick, and publishes an event to the replicas that have closed the tick.
func (x *executor) giveBack(term *election.Term, run *Run, reason string) {
	log := x.runLogger(run)
	if err := term.Undo(context.Background()); err != nil {
		log.Warn("a tick that was not started could not be given back", "reason", reason, "error", err)
		return
	}
	log.Info("not started, and given back", "reason", reason)
	if x.events == nil {
		return
	}
	if err := x.events.Publish(context.Background(), []*election.Term{term}, nil); err != nil {
		log.Debug("returned tick not published; other replicas notice it when the lease would have ended", "error", err)
	}
}
