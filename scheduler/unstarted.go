package scheduler

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/backoff"
)

// retryStart is how long a try that follows others is started again and again where this replica is not able to: no other replica has the lease.
const retryStart = time.Minute

// unstartedTry handles a try that has not begun, and returns whether it is to be started again, after a pause. It is no attempt. If it is the first one
// the grant is given back; another is started again under the same number, as long as it is waited for. last is the try before it, if there was one.
func (x *executor) unstartedTry(ctx context.Context, run *Run, term *election.Term, last *pastTry, since time.Time, why error) (again bool) {
	until := run.insist
	if last != nil {
		until = since.Add(retryStart)
	}
	if !x.now().Before(until) {
		return false
	}
	pause := min(x.backoffs.next(run.Job, why), until.Sub(x.now()))
	run.Logger.Info("not started; trying again", "attempt", run.Attempt, "error", why, "retry_in", pause.Round(time.Millisecond).String())
	return x.rest(ctx, term, pause)
}

// undo ends the term of a run that has never begun. It is given back, and that is published, so that another replica runs it; a run that no other
// replica can begin is recorded.
func (x *executor) undo(job *Job, run *Run, term *election.Term, record *Record, end tryEnd) ending {
	switch {
	case term == nil:
	case run.insist.IsZero():
		x.giveBack(term, run, end.why.Error())
	default:
		return ending{record: x.abandonRequest(job, run, term, record), unreturned: end.unreturned}
	}
	run.life.to(phase{name: phaseReleased})
	return ending{unstarted: end.why, unreturned: end.unreturned}
}

// abandonRequest records a run that was requested, and that was not started until the request expired, or the run was stopped.
func (x *executor) abandonRequest(job *Job, run *Run, term *election.Term, record *Record) Record {
	record.Started, record.Finished = time.Time{}, x.now()
	switch why := whyStopped(term); {
	case why != nil:
		record.conclude(Result{}, why, false)
	case term.Context().Err() != nil:
		record.conclude(Result{}, ErrLost, false)
	case x.draining.Err() != nil, x.abort.Err() != nil:
		record.conclude(Result{}, ErrDrain, false)
	default:
		record.Outcome, record.Reason = Missed, "capacity"
	}
	x.recordEnd(*record, job.Lease/4)
	run.life.to(phase{name: phaseRecorded})
	if err := term.End(context.Background()); err != nil {
		run.Logger.Warn("the lease could not be released; it ends by itself", "error", err)
	}
	run.life.to(phase{name: phaseReleased})
	run.Logger.Log(record.Outcome.level(record.Reason, false), "not started", "outcome", string(record.Outcome), "reason", record.Reason)
	return *record
}

// holdPlace keeps the place of a run that was not started until its Runner has returned, which may hang. A replica that can start other programs leaves the job to
// the others for a pause that grows; where it can start none the breaker keeps it from claiming.
func (x *executor) holdPlace(job *Job, end ending) {
	var pause time.Duration
	if !x.breaker.failed(end.unstarted) {
		pause = x.backoffs.next(job.Name, end.unstarted)
		x.log.Warn("cannot start the job; it is left to the other replicas", "job", job.Name, "error", end.unstarted, "retry_in", pause.String())
	}
	backoff.Sleep(x.draining, pause)
	select {
	case <-end.unreturned:
	case <-x.draining.Done():
	}
}

// giveBack opens the tick again, and has the others told, who believe it taken.
func (x *executor) giveBack(term *election.Term, run *Run, reason string) {
	log := x.logger(run)
	if err := term.Return(context.Background()); err != nil {
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
