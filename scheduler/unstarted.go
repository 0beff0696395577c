package scheduler

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/backoff"
)

// retryStart is the time for which a later try of a run is started again if this replica cannot start it. No other replica can: this one has the
// lease.
const retryStart = time.Minute

// unstartedTry handles a try whose work has not begun. It waits and returns true if the try is to be started again, under the same attempt. A run
// whose first try did not begin is given back instead, unless no other replica can begin it. last is the try before, or nil.
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

// undoGrant ends the term of a run that never began. It gives the grant back and publishes that, so that another replica runs it. A run that no other
// replica can begin is recorded instead.
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

// abandonRequest records a requested run that was not started before the request expired, or before the run was stopped.
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

// holdPlace holds the place of a run that was not started until its Runner, which may hang, has returned. A replica that can start other programs
// leaves the job to the others for a growing pause. If it can start none, the breaker stops it from claiming.
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

// giveBack opens the tick of a term again, and publishes that to the replicas that believe it taken.
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
