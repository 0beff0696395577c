package scheduler

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/backoff"
)

// A pastTry is a failed try that another try may follow. run is the record of the run if no other try follows. try is the record of the try if one
// follows.
type pastTry struct{ run, try Record }

// recordBegun records that the work of a try has begun. It does not wait for the write: if this replica dies before it, the run leaves an orphan,
// which other replicas record. For a later try, the record of the run is written first, with the new attempt number. Then the record of the last try
// follows, so that no reader finds two records of one attempt.
func (x *executor) recordBegun(run *Run, record Record, at time.Time, last *pastTry) {
	if last == nil {
		record.Started = at
	}
	x.recorder.add(record)
	if last != nil {
		x.recorder.add(last.try)
	}
	x.backoffs.clearFailure(run.Job)
	x.breaker.noteStarted()
	run.Logger.Info("started", "slot", run.Slot, "attempt", run.Attempt)
}

// tryRecord returns the record of a try that another try follows. Its id consists of the run id and the attempt number.
func (r *Record) tryRecord(began time.Time) Record {
	one := *r
	one.RunID, one.Started, one.Retried, one.FailedTries = fmt.Sprintf("%s.%d", r.RunID, r.Attempt), began, true, 0
	return one
}

// beginAttempt resets the record of a run for its next attempt.
func (r *Record) beginAttempt(attempt int) {
	r.Attempt, r.Outcome, r.Reason, r.Detail, r.FailedTries = attempt, Running, "", "", r.FailedTries+1
	r.Finished, r.ExitCode, r.Signal, r.Output, r.OutputCut = time.Time{}, nil, "", nil, 0
}

// nextTry waits for the pause, and until Redis has acknowledged the number of the next attempt, so that no recovery gets the same number. The lease
// is renewed during the wait. ok is false if the run must have no other try.
func (x *executor) nextTry(ctx context.Context, job *Job, run *Run, term *election.Term, pause time.Duration) (attempt int, ok bool) {
	if !x.restBetweenTries(ctx, term, pause) {
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

// restBetweenTries waits between two tries. It reports whether the run may have another try.
func (x *executor) restBetweenTries(ctx context.Context, term *election.Term, pause time.Duration) bool {
	wait, end := x.untilStopped(ctx, term)
	defer end()
	backoff.Sleep(wait, pause)
	return x.goesOn(ctx, term) // a stop may have ended the wait
}

// untilStopped returns a context that ends when the run must have no other try. end releases its resources.
func (x *executor) untilStopped(ctx context.Context, term *election.Term) (wait context.Context, end func()) {
	wait, cancel := context.WithCancel(ctx)
	stops := []func() bool{context.AfterFunc(x.draining, cancel), context.AfterFunc(x.abort, cancel)}
	if term != nil {
		stops = append(stops, context.AfterFunc(term.Context(), cancel))
	}
	var asked sync.WaitGroup
	asked.Go(func() {
		select {
		case <-stopRequested(term):
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

// goesOn reports whether the run may have another try.
func (x *executor) goesOn(ctx context.Context, term *election.Term) bool {
	held := term == nil || term.Context().Err() == nil
	return held && ctx.Err() == nil && x.draining.Err() == nil && x.abort.Err() == nil && whyStopped(term) == nil
}

// noMoreTries concludes a run that was stopped between two tries. If the run was canceled or replaced, or lost its lease, this becomes the outcome.
// Otherwise the outcome of the last try remains.
func (x *executor) noMoreTries(ctx context.Context, job *Job, term *election.Term, record *Record) endState {
	why := whyStopped(term)
	if why == nil && hasLapsed(job, term) {
		why, record.Reason = ErrLost, ""
	}
	switch {
	case why != nil:
		record.Finished = x.now()
		record.setOutcome(Result{ExitCode: record.ExitCode, Signal: record.Signal, Output: record.Output, OutputCut: record.OutputCut,
			LeftBehind: record.Detail}, why, false)
		return concluded
	case ctx.Err() != nil:
		return concluded
	}
	return interrupted
}
