package scheduler

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/backoff"
)

// pastTry is a try that another may follow: its record if it is the last one of the run, and if it is not.
type pastTry struct{ run, try Record }

// begun records a try whose work has begun. The record of the run's start is not waited for: a holder that dies before it is written leaves an orphan, which
// is recorded as well. Where another try was before, the run has the new attempt first: no reader finds two of one number.
func (x *executor) begun(run *Run, record Record, at time.Time, last *pastTry) {
	if last == nil {
		record.Started = at
	}
	x.recorder.add(record)
	if last != nil {
		x.recorder.add(last.try)
	}
	x.backoffs.reset(run.Job)
	x.breaker.started()
	run.Logger.Info("started", "slot", run.Slot, "attempt", run.Attempt)
}

// try is the record of a try that another has followed. Its id is the run's and the attempt.
func (r *Record) try(began time.Time) Record {
	one := *r
	one.RunID, one.Started, one.Retried, one.FailedTries = fmt.Sprintf("%s.%d", r.RunID, r.Attempt), began, true, 0
	return one
}

// begin makes the record of a run that goes on with another attempt.
func (r *Record) begin(attempt int) {
	r.Attempt, r.Outcome, r.Reason, r.Detail, r.FailedTries = attempt, Running, "", "", r.FailedTries+1
	r.Finished, r.ExitCode, r.Signal, r.Output, r.OutputCut = time.Time{}, nil, "", nil, 0
}

// nextTry waits for the next try, while the lease is renewed: for the pause, and then until the cluster has acknowledged the try's number, so that
// no recovery elsewhere begins a try of the same number. ok is false where there is to be no other try.
func (x *executor) nextTry(ctx context.Context, job *Job, run *Run, term *election.Term, pause time.Duration) (attempt int, ok bool) {
	if !x.rest(ctx, term, pause) {
		return 0, false
	}
	if term == nil {
		return run.Attempt + 1, true
	}
	late := time.AfterFunc(job.Lease/4, func() {
		run.Logger.Warn("next try waits: Redis has not acknowledged its attempt number", "attempt", run.Attempt+1)
	})
	defer late.Stop()
	wait, end := x.untilStopped(ctx, term)
	defer end()
	attempt, err := term.NextAttempt(wait)
	return attempt, err == nil && x.goesOn(ctx, term)
}

// rest waits between two tries, while the lease is renewed. It returns whether there is to be another one.
func (x *executor) rest(ctx context.Context, term *election.Term, pause time.Duration) bool {
	wait, end := x.untilStopped(ctx, term)
	defer end()
	backoff.Sleep(wait, pause)
	return x.goesOn(ctx, term) // also if it was in the same moment
}

// untilStopped is a context that ends with whatever forbids another try; end releases it.
func (x *executor) untilStopped(ctx context.Context, term *election.Term) (wait context.Context, end func()) {
	wait, cancel := context.WithCancel(ctx)
	stops := []func() bool{context.AfterFunc(x.draining, cancel), context.AfterFunc(x.abort, cancel)}
	if term != nil {
		stops = append(stops, context.AfterFunc(term.Context(), cancel))
	}
	var asked sync.WaitGroup
	asked.Go(func() {
		select {
		case <-stopping(term):
			cancel()
		case <-wait.Done():
		}
	})
	return wait, func() {
		cancel()
		asked.Wait()
		for _, stop := range stops {
			stop()
		}
	}
}

// goesOn returns whether there may be another try.
func (x *executor) goesOn(ctx context.Context, term *election.Term) bool {
	held := term == nil || term.Context().Err() == nil
	return held && ctx.Err() == nil && x.draining.Err() == nil && x.abort.Err() == nil && whyStopped(term) == nil
}

// noMoreTries concludes a run that was to have another try. The outcome is that of its last one, unless the run was stopped, or its lease was lost.
func (x *executor) noMoreTries(ctx context.Context, job *Job, term *election.Term, record *Record) endState {
	why := whyStopped(term)
	if why == nil && lapsed(job, term) {
		why, record.Reason = ErrLost, ""
	}
	switch {
	case why != nil:
		record.Finished = x.now()
		record.conclude(Result{ExitCode: record.ExitCode, Signal: record.Signal, Output: record.Output, OutputCut: record.OutputCut,
			LeftBehind: record.Detail}, why, false)
		return concluded
	case ctx.Err() != nil:
		return concluded
	}
	return interrupted
}
