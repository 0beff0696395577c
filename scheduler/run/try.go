package run

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/selffence"
)

// A run that failed or timed out is repeated on the same replica. Each execution is called a try. All tries of a run have the same lease, token and
// slot. Tries and recoveries share one attempt counter.

// A tryEnd is the result of all tries of a run.
type tryEnd struct {
	state      endState
	why        error           // the reason if state is notStarted
	unreturned <-chan struct{} // see [Ending]
}

type endState int

const (
	concluded   endState = iota // the record has the outcome of the run
	interrupted                 // another try was due but must not begin here; a recovery may run it
	notStarted                  // no try has begun its work
)

// A pastTry has two records of a failed try. If another try begins, the record try is written, which describes only the failed try. If no other try
// begins, the record run is written, which describes the whole run.
type pastTry struct{ run, try Record }

// runTries runs tries until no further try may follow. The record then has the outcome of the last try, and each earlier try has a record of its own.
func (e *execution) runTries() (end tryEnd) {
	var last *pastTry
	run, record := &e.Run, &e.record
	for asked := e.x.Now(); ; {
		opening, this, before := *record, run, last
		begin, result, cause := e.launchTry(run, func(at time.Time) { e.recordBegun(this, opening, at, before) })
		end.unreturned = begin.over
		if end.why = begin.unstartedCause(result, cause); end.why != nil {
			if e.retryUnstarted(run, last, asked, end.why) {
				continue
			}
			if end.state = notStarted; last != nil {
				*record = last.run
				end.state = e.noMoreTries()
			}
			return end
		}
		began := begin.beganAt(asked)
		if last == nil {
			record.Started = began
		}
		ended := e.x.Now().Add(-result.EndedAgo)
		if ended.Before(began) {
			ended = began
		}
		record.finish(ended)
		record.keepResult(result)
		record.setOutcome(result.Err, cause, e.hasLapsed())
		if last != nil && !begin.is(started) { // this try was stopped before its work began; it still counts as a try, so the previous try gets a record of its own
			e.x.recorder.Add(last.try)
		}
		if run.Attempt > e.Job.Retries || record.Outcome != Failed && record.Outcome != TimedOut {
			return end
		}
		pause := e.Job.RetryPause(run.Attempt)
		last = &pastTry{run: *record, try: record.tryRecord(began)}
		run.Logger.Info("try failed", append(last.try.logFields(), "attempt", run.Attempt, "retry_in", pause.Round(time.Millisecond).String())...)
		attempt, ok := e.nextAttempt(run, pause)
		if !ok {
			end.state = e.noMoreTries()
			return end
		}
		next := *run
		next.Attempt, next.Granted = attempt, time.Time{}
		run, asked = &next, e.x.Now()
		record.beginAttempt(attempt)
	}
}

// launchTry runs one try and returns the cause of its stop, or nil if it was not stopped. began is called when the work has begun, by the goroutine
// of the Runner if the job has a StartTimeout. The Runner gets a copy of the run: after a try was called off, its Runner may still use this copy
// while the next try is launched.
func (e *execution) launchTry(of *Run, began func(at time.Time)) (begin *start, result Result, cause error) {
	stop, stopNow := context.WithCancelCause(context.Background())
	kill, killNow := context.WithCancel(context.Background())
	defer killNow()
	defer stopNow(nil)
	begin = &start{began: began, now: e.x.Now, over: make(chan struct{})}
	try := *of
	run := &try
	run.Kill, run.start = kill, begin
	e.awaitLease()
	if why := e.tooLate(); why != nil {
		close(begin.over)
		return begin, Result{}, why
	}
	g := guard{execution: e, limits: selffence.Limits{Lease: e.Job.Lease, Grace: e.Job.KillGrace}, start: begin, stopRun: stopNow, kill: killNow}
	if e.Term != nil && !e.Job.OutlivesLease {
		g.term, g.lost, run.Lease = e.Term, e.Term.Context().Done(), e.Term
	}
	if e.Job.StartTimeout == 0 {
		_ = begin.enterStarting() // it succeeds, because the state is preparing
		begin.confirmStarted()
	}
	returned := Result{Err: errNoReturn} // stays if the Runner ends its goroutine without returning
	go func() {
		defer close(begin.over)
		returned = e.Job.callRunner(stop, run)
	}()
	cause = g.watchRun(begin.over)
	if begin.is(calledOff) && !returnsSoon(begin.over) {
		return begin, Result{}, cause
	}
	if returned.LeftBehind != "" {
		cause = nil // the work had ended before the stop
	}
	return begin, returned, cause
}

const (
	// lastWord bounds the wait for a Runner whose try was called off. The Runner may still return the reason for which its work has not begun.
	lastWord = 250 * time.Millisecond
	// startConfirmGrace is the time after the StartTimeout in which a start that is under way may still be confirmed, because this process may have
	// been suspended. It is shorter than startMargin in package scheduler (1 s), after which other replicas inspect the run.
	startConfirmGrace = 250 * time.Millisecond
)

func returnsSoon(over <-chan struct{}) bool {
	timer := time.NewTimer(lastWord)
	defer timer.Stop()
	select {
	case <-over:
		return true
	case <-timer.C:
		return false
	}
}

// awaitLease waits until the lease of a run has its whole length. Otherwise, a run whose grant arrived late could be stopped right after its start.
func (e *execution) awaitLease() {
	if e.Term == nil {
		return
	}
	select {
	case <-e.Term.Confirmed():
	case <-e.Term.Context().Done():
	case <-stopRequested(e.Term):
	case <-e.stop.Done():
	case <-e.x.draining.Done():
	case <-e.x.Abort.Done():
	}
}

// tooLate returns the reason for which a try must not be started any more, or nil if it may be started.
func (e *execution) tooLate() error {
	switch {
	case e.Term != nil && e.Term.Context().Err() != nil:
		return ErrLost
	case e.x.Abort.Err() != nil, e.x.draining.Err() != nil && time.Now().After(e.x.limit):
		return ErrDrain
	}
	return whyStopped(e.Term)
}

// errNoReturn is the error of a Runner that ended its goroutine without returning.
var errNoReturn = errors.New("runtime.Goexit was called")

// callRunner turns a panic of the Runner into a failed run.
func (j *Job) callRunner(stop context.Context, run *Run) (result Result) {
	defer func() {
		if p := recover(); p != nil {
			run.Logger.Error("the job panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			result = Result{Err: fmt.Errorf("panic: %v", p)}
		}
	}()
	return j.Runner.Run(stop, run)
}

// recordBegun records that the work of a try has begun. It does not wait for the write: if this replica dies before the write, the run leaves an
// orphan, which other replicas record. For a later try, the record of the run is written first, with the new attempt number. The record of the
// previous try follows. In the other order, a reader could find two records of one attempt.
func (e *execution) recordBegun(run *Run, record Record, at time.Time, last *pastTry) {
	if last == nil {
		record.Started = at
	}
	e.x.recorder.Add(record)
	if last != nil {
		e.x.recorder.Add(last.try)
	}
	e.x.backoffs.clearFailure(run.Job)
	e.x.breaker.noteStarted()
	run.Logger.Info("started", "slot", run.Slot, "attempt", run.Attempt)
}

// nextAttempt waits for the pause, and until Redis has acknowledged the number of the next attempt, so that no recovery gets the same number. The lease
// is renewed during the wait. ok is false if the run must have no other try.
func (e *execution) nextAttempt(run *Run, pause time.Duration) (attempt int, ok bool) {
	if !e.restBetweenTries(pause) {
		return 0, false
	}
	if e.Term == nil {
		return run.Attempt + 1, true
	}
	late := time.AfterFunc(e.Job.Lease/4, func() {
		run.Logger.Warn("next try waits: Redis has not acknowledged its attempt number", "attempt", run.Attempt+1)
	})
	defer late.Stop()
	wait, end := e.untilStopped()
	defer end()
	attempt, err := e.Term.NextAttempt(wait)
	return attempt, err == nil && e.goesOn()
}

func (e *execution) restBetweenTries(pause time.Duration) bool {
	wait, end := e.untilStopped()
	defer end()
	backoff.Sleep(wait, pause)
	return e.goesOn() // a stop may have ended the wait
}

// untilStopped returns a context that ends when the run may have no other try. Call end to release the resources of the context.
func (e *execution) untilStopped() (wait context.Context, end func()) {
	wait, cancel := context.WithCancel(e.stop)
	stops := []func() bool{context.AfterFunc(e.x.draining, cancel), context.AfterFunc(e.x.Abort, cancel)}
	if e.Term != nil {
		stops = append(stops, context.AfterFunc(e.Term.Context(), cancel))
	}
	var asked sync.WaitGroup
	asked.Go(func() {
		select {
		case <-stopRequested(e.Term):
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

func (e *execution) goesOn() bool {
	held := e.Term == nil || e.Term.Context().Err() == nil
	return held && e.stop.Err() == nil && e.x.draining.Err() == nil && e.x.Abort.Err() == nil && whyStopped(e.Term) == nil
}

// noMoreTries concludes a run that was stopped between two tries. If the run was canceled or replaced, or lost its lease, its outcome becomes
// canceled or lost. Otherwise the outcome of the last try remains.
func (e *execution) noMoreTries() endState {
	record, why := &e.record, whyStopped(e.Term)
	if why == nil && e.hasLapsed() {
		why, record.Reason = ErrLost, ""
	}
	switch {
	case why != nil:
		record.finish(e.x.Now())
		record.setOutcome(nil, why, false)
		return concluded
	case e.stop.Err() != nil:
		return concluded
	}
	return interrupted
}

// hasLapsed reports whether the term of the run has ended. It returns false if the run may outlive its lease.
func (e *execution) hasLapsed() bool {
	return e.Term != nil && !e.Job.OutlivesLease && (e.Term.Context().Err() != nil || e.Term.Remaining() <= 0)
}

func whyStopped(term *election.Term) error {
	if term == nil {
		return nil
	}
	switch term.StopReason() {
	case "":
		return nil
	case election.StopReplaced:
		return ErrReplaced
	}
	return ErrCanceled
}

func stopRequested(term *election.Term) <-chan struct{} {
	if term == nil {
		return nil
	}
	return term.Stopping()
}

// retryStart is the time for which this replica repeats the failed start of a second or later try. No other replica can run this try, because this
// replica holds the lease.
const retryStart = time.Minute

// retryUnstarted handles a try whose work could not begin. It waits and returns true if the start is to be repeated, with the same attempt number. It
// returns false if the time for that is over, or for the first try of a run that another replica can run. last is the previous try, or nil.
func (e *execution) retryUnstarted(run *Run, last *pastTry, since time.Time, why error) (again bool) {
	until := e.Insist
	if last != nil {
		until = since.Add(retryStart)
	}
	if !e.x.Now().Before(until) {
		return false
	}
	pause := min(e.x.backoffs.nextPause(run.Job, why), until.Sub(e.x.Now()))
	run.Logger.Info("not started; trying again", "attempt", run.Attempt, "error", why, "retry_in", pause.Round(time.Millisecond).String())
	return e.restBetweenTries(pause)
}
