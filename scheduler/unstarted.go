package scheduler

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/election"
)

// tryEnd is how the tries of a run have ended.
type tryEnd struct {
	state      endState
	why        error           // of notStarted
	unreturned <-chan struct{} // see [led]
}

type endState int

const (
	concluded   endState = iota // the record has the outcome
	interrupted                 // there was to be another try, which another replica may have
	notStarted                  // no try has begun
)

// retryStart is how long a try that follows others is started again and again where this replica is not able to: no other replica has the lease.
const retryStart = time.Minute

// unstartedTry deals with a try that has not begun, and tells whether it is to be started again, after a pause. It is no attempt: where it is the first one the grant
// is given back; another is started again under the same number, as long as somebody waits for it. last is the try before it, if there was one.
func (x *executor) unstartedTry(ctx context.Context, run *Run, term *election.Term, last *pastTry, since time.Time, why error) (again bool) {
	until := run.insist
	if last != nil {
		until = since.Add(retryStart)
	}
	if !x.now().Before(until) {
		return false
	}
	pause := min(x.pauses.next(run.Job), until.Sub(x.now()))
	run.Logger.Info("not started; trying again", "attempt", run.Attempt, "error", why, "retry_in", pause.Round(time.Millisecond).String())
	return x.rest(ctx, term, pause)
}

// undo ends the term of a run that has never begun. It is given back, and the others are told, so that one of them runs it; a run that nobody else can begin is
// recorded.
func (x *executor) undo(job *Job, run *Run, term *election.Term, record *Record, end tryEnd) led {
	switch {
	case term == nil:
	case run.insist.IsZero():
		x.giveBack(term, run, end.why.Error())
	default:
		return led{record: x.abandonRequest(job, run, term, record), unreturned: end.unreturned}
	}
	return led{unstarted: end.why, unreturned: end.unreturned}
}

// abandonRequest records a run that somebody asked for, and that was not started until the request expired, or the run was stopped.
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
	x.announce(*record, job.Lease/4)
	if err := term.End(context.Background()); err != nil {
		run.Logger.Warn("the lease could not be released; it ends by itself", "error", err)
	}
	run.Logger.Log(record.Outcome.level(record.Reason, false), "not started", "outcome", string(record.Outcome), "reason", record.Reason)
	return *record
}

// holdPlace keeps the place of a run that was not started until its Runner has returned, which may hang. A replica that can start other programs leaves the job to
// the others for a pause that grows; where it can start none the breaker keeps it from claiming.
func (x *executor) holdPlace(job *Job, led led) {
	var pause time.Duration
	if !x.breaker.failed(led.unstarted) {
		pause = x.pauses.next(job.Name)
		x.log.Warn("run not started in time, or for want of a resource; leaving the job to the other replicas", "job", job.Name, "error", led.unstarted, "retry_in", pause.String())
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-x.draining.Done():
	}
	select {
	case <-led.unreturned:
	case <-x.draining.Done():
	}
}

// restore takes up a tick whose grant was given back since this replica was not able to start its run, unless another replica has it by now.
func (s *Scheduler) restore(k *tick, now time.Time) {
	t := k.task
	if s.leaving {
		return
	}
	switch {
	case k.trigger == recovered: // the orphan awaits a recovery again
		s.watch(t, now)
	case t.chained(): // the jobs before it tell which of them are its ticks
		s.check(t, now)
	default:
		if i, open := t.find(k.at); open { // for another of its grants
			t.open[i].won = max(t.open[i].won-1, 0)
			return
		}
		s.reopenTick(t, k.at, "capacity", now)
	}
}
