package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/backoff"
)

// runTries runs the tries of a run. At the end, record has the outcome of the last try. Each earlier try has its own record.
func (x *executor) runTries(ctx context.Context, job *Job, run *Run, term *election.Term, record *Record) (end tryEnd) {
	var last *pastTry
	for asked := x.now(); ; {
		opening, this, before := *record, run, last
		run.life.moveTo(phase{name: phaseRunning, try: run.Attempt})
		begin, result, cause := x.launchTry(ctx, job, run, term, func(at time.Time) { x.recordBegun(this, opening, at, before) })
		run.life.moveTo(phase{name: phaseDead})
		end.unreturned = begin.over
		if end.why = begin.unstartedCause(result, cause); end.why != nil {
			if x.unstartedTry(ctx, run, term, last, asked, end.why) {
				continue
			}
			if end.state = notStarted; last != nil {
				*record = last.run
				end.state = x.noMoreTries(ctx, job, term, record)
			}
			return end
		}
		began := begin.beganAt(asked)
		if last == nil {
			record.Started = began
		}
		record.Finished = later(x.now().Add(-result.EndedAgo), began)
		record.setOutcome(result, cause, hasLapsed(job, term))
		if last != nil && !begin.is(started) { // this try was stopped before its work began; it still counts, so the try before it gets its record
			x.recorder.add(last.try)
		}
		if run.Attempt > job.Retry.Max || record.Outcome != Failed && record.Outcome != TimedOut {
			return end
		}
		pause := job.Retry.pauseBefore(run.Attempt)
		last = &pastTry{run: *record, try: record.tryRecord(began)}
		run.Logger.Info("try failed", append(last.try.logFields(), "attempt", run.Attempt, "retry_in", pause.Round(time.Millisecond).String())...)
		attempt, ok := x.nextTry(ctx, job, run, term, pause)
		if !ok {
			end.state = x.noMoreTries(ctx, job, term, record)
			return end
		}
		next := *run
		next.Attempt = attempt
		run, asked = &next, x.now()
		record.beginAttempt(attempt)
	}
}

// A tryEnd is the result of all tries of a run.
type tryEnd struct {
	state      endState
	why        error           // the reason if state is notStarted
	unreturned <-chan struct{} // see [ending]
}

type endState int

const (
	concluded   endState = iota // the record has the outcome of the run
	interrupted                 // another try was due but must not begin here; a recovery may run it
	notStarted                  // no try has begun its work
)

// launchTry runs one try and returns the cause of its stop, or nil if it was not stopped. began is called when the work has begun, from the goroutine
// of the Runner. The Runner gets a copy of the run, because the Runner of a try that was called off may still use its Run when the next try is
// launched.
func (x *executor) launchTry(ctx context.Context, job *Job, of *Run, term *election.Term, began func(at time.Time)) (begin *start, result Result, cause error) {
	stop, stopNow := context.WithCancelCause(context.Background())
	kill, killNow := context.WithCancel(context.Background())
	defer killNow()
	defer stopNow(nil)
	begin = &start{began: began, now: x.now, over: make(chan struct{})}
	try := *of
	run := &try
	run.Kill, run.start = kill, begin
	x.awaitLease(ctx, term)
	if why := x.tooLate(term); why != nil {
		close(begin.over)
		return begin, Result{}, why
	}
	asked := term
	if job.OutlivesLease {
		term = nil
	}
	if term != nil {
		run.Lease = term
	}
	if job.StartTimeout == 0 {
		_ = begin.enterStarting() // it succeeds, because the state is preparing
		begin.confirmStarted()
	}
	returned := Result{Err: errNoReturn} // stays if the Runner ends its goroutine without returning
	go func() {
		defer close(begin.over)
		returned = job.callRunner(stop, run)
	}()
	g := guard{executor: x, job: job, term: term, cancel: ctx, asked: asked, start: begin, life: run.life, stop: stopNow, kill: killNow}
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
	// lastWord bounds the wait for a Runner that was called off to return the reason why it has not begun.
	lastWord = 250 * time.Millisecond
	// startConfirmGrace is the time beyond the StartTimeout in which a start that is under way may still be confirmed: a process that was suspended receives the
	// confirmation late. It is shorter than startMargin, after which other replicas look at the run.
	startConfirmGrace = 250 * time.Millisecond
)

// returnsSoon reports whether a Runner returns within lastWord. It may hang instead.
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

// awaitLease waits until the lease of a run has its whole length. Otherwise a run whose grant arrived late might be stopped right after its start.
func (x *executor) awaitLease(ctx context.Context, term *election.Term) {
	if term == nil {
		return
	}
	select {
	case <-term.Confirmed():
	case <-term.Context().Done():
	case <-stopRequested(term):
	case <-ctx.Done():
	case <-x.draining.Done():
	case <-x.abort.Done():
	}
}

// tooLate returns the reason for which a try must not be started any more, or nil if it may be started.
func (x *executor) tooLate(term *election.Term) error {
	switch {
	case term != nil && term.Context().Err() != nil:
		return ErrLost
	case x.abort.Err() != nil, x.draining.Err() != nil && time.Now().After(x.limit):
		return ErrDrain
	}
	return whyStopped(term)
}

// errNoReturn is the error of a Runner that ended its goroutine without returning.
var errNoReturn = errors.New("runtime.Goexit was called")

// callRunner calls the Runner. It turns a panic into a failed run.
func (j *Job) callRunner(stop context.Context, run *Run) (result Result) {
	defer func() {
		if p := recover(); p != nil {
			run.Logger.Error("the job panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			result = Result{Err: fmt.Errorf("panic: %v", p)}
		}
	}()
	return j.Runner.Run(stop, run)
}

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

// Retries: a run that failed or timed out is repeated on the same replica. Each execution is called a try.
//
// All tries of a run have the same lease, token and slot. Try n+1 begins after a pause of Delay*2^(n-1), at most MaxDelay, reduced by a random part
// of up to half. Tries and recoveries share one attempt counter.

// Retry repeats a run that failed or timed out, on the same replica, with the same lease and token. Each try has the whole Timeout. The zero value
// means no retry.
type Retry struct {
	// Max is the maximum number of tries after the first; at most 100. Attempts of [Recover] count, too.
	Max int
	// Delay is the pause before the second try. The pause doubles with each try, up to MaxDelay. A random part of up to half is subtracted, so that runs
	// that failed at the same time are not all retried at the same time. Delay defaults to 5s, or to MaxDelay if that is less. MaxDelay defaults to 5m,
	// or to Delay if that is more.
	Delay, MaxDelay time.Duration
}

func (r Retry) withDefaults() Retry {
	if r.Max == 0 {
		return Retry{}
	}
	if r.Delay == 0 {
		r.Delay = min(5*time.Second, orDefault(r.MaxDelay, 5*time.Second))
	}
	r.MaxDelay = orDefault(r.MaxDelay, max(5*time.Minute, r.Delay))
	return r
}

func (r Retry) findFault() string {
	switch {
	case r.Max < 0 || r.Max > 100:
		return fmt.Sprintf("Retry.Max is %d: it must be from 0 to 100", r.Max)
	case r.Delay < 0 || r.MaxDelay < r.Delay:
		return fmt.Sprintf("Retry.MaxDelay is %v: it must not be less than Delay, %v, nor that negative", r.MaxDelay, r.Delay)
	}
	return ""
}

// pauseBefore returns the pause after the try with this number, from 1.
func (r Retry) pauseBefore(number int) time.Duration {
	d := r.Delay
	for ; number > 1 && d < r.MaxDelay; number-- {
		d *= 2
	}
	d = min(d, r.MaxDelay)
	return d - rand.N(d/2+1)
}
