package scheduler

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/cronclave/cronclave/election"
)

// launchTry runs one try under its two contexts and returns the cause of its stop, if it was stopped. The goroutine of the runner calls began when the
// work has begun. The runner gets a copy of the run, because a try that was called off may still use it when the next one is launched.
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
		_ = begin.enterStarting() // the state is still preparing, so it succeeds
		begin.confirmStarted()
	}
	returned := Result{Err: errNoReturn} // in case the runner never returns
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
		cause = nil // it had ended before it was stopped
	}
	return begin, returned, cause
}

const (
	// lastWord bounds the wait for the Runner of a try that was called off to return the reason for which it has not begun.
	lastWord = 250 * time.Millisecond
	// startConfirmGrace is the time beyond the StartTimeout for the confirmation of a start that is under way: a process that stood still receives it late. It is
	// shorter than startMargin, after which other replicas look at the run.
	startConfirmGrace = 250 * time.Millisecond
)

// returnsSoon reports whether a Runner that was stopped returns soon. It may hang.
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

// awaitLease waits until the lease of a run has its whole length. Otherwise a run whose grant became known late might be stopped before it has done
// anything.
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

// tooLate returns the reason for which a run must not be started any more: it took too long to get here.
func (x *executor) tooLate(term *election.Term) error {
	switch {
	case term != nil && term.Context().Err() != nil:
		return ErrLost
	case x.abort.Err() != nil, x.draining.Err() != nil && time.Now().After(x.limit):
		return ErrDrain
	}
	return whyStopped(term)
}

// errNoReturn is the result of a Runner that ended its goroutine without returning.
var errNoReturn = errors.New("runtime.Goexit was called")

// callRunner calls the runner. A panic is a failed run.
func (j *Job) callRunner(stop context.Context, run *Run) (result Result) {
	defer func() {
		if p := recover(); p != nil {
			run.Logger.Error("the job panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			result = Result{Err: fmt.Errorf("panic: %v", p)}
		}
	}()
	return j.Runner.Run(stop, run)
}
