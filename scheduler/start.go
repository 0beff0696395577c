package scheduler

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

var (
	// ErrNotStarted is wrapped by the [Result] of a Runner that could not begin its work for want of something that this replica lacks, such as processes or
	// file descriptors: the grant is given back, for another replica to use. It counts only if the run has not begun.
	ErrNotStarted = errors.New("not started")
	// errStartTimeout is why a run is called off whose Runner takes too long to begin.
	errStartTimeout = fmt.Errorf("%w within the time for that", ErrNotStarted)
	// errCalledOff is the error for a Runner that begins too late.
	errCalledOff = fmt.Errorf("%w: the run was called off", ErrNotStarted)
)

// startState is where a try of a run is on the way from its grant to its work.
type startState int32

const (
	// preparing: nothing has begun. The Runner can begin, or the executor call the run off, whichever comes first.
	preparing startState = iota
	// starting: the Runner is in the step that can't be undone from outside. It alone knows whether that step worked.
	starting
	// overdue: as starting, and the time for the start is over. News of it may be on its way, if this process stood still.
	overdue
	// started: the work has begun, and the grant is never given back.
	started
	// calledOff: the work never begins.
	calledOff
)

// start decides, once for each try of a run, between its work and the return of its grant: both leave the state preparing by one compare-and-swap.
type start struct {
	state atomic.Int32
	began func(at time.Time) // told when the work has begun
	now   func() time.Time
	at    time.Time     // when that was; read after the Runner has returned
	over  chan struct{} // closed when the Runner has returned
}

func (s *start) is(state startState) bool { return startState(s.state.Load()) == state }

// callOff returns whether the work never begins: it has not, and the run is called off now or was before.
func (s *start) callOff() bool {
	return s.state.CompareAndSwap(int32(preparing), int32(calledOff)) || s.is(calledOff)
}

// begin leaves preparing for starting.
func (s *start) begin() error {
	if !s.state.CompareAndSwap(int32(preparing), int32(starting)) {
		return errCalledOff
	}
	return nil
}

// awaitNews reports whether to wait a moment longer for news of a start whose time is over. It does so once, for a start that was under way.
func (s *start) awaitNews() bool { return s.state.CompareAndSwap(int32(starting), int32(overdue)) }

// confirm notes that the work has begun.
func (s *start) confirm() {
	if s.state.CompareAndSwap(int32(starting), int32(started)) || s.state.CompareAndSwap(int32(overdue), int32(started)) {
		s.at = s.now()
		s.began(s.at)
	}
}

// beganAt is when the work of a try that has returned began, or was to begin.
func (s *start) beganAt(asked time.Time) time.Time {
	if s.is(started) {
		return s.at
	}
	return asked
}

// Begin is called by a Runner of a job with a [Job.StartTimeout] right before the step by which its work begins. An error means that the grant was given
// back meanwhile: the work must not begin, and Run returns the error. After Begin the Runner calls [Run.Began], or returns an error that wraps
// [ErrNotStarted] if the step did not work for want of something that this replica lacks. For other jobs it does nothing.
func (r *Run) Begin() error {
	if r.start == nil || r.start.is(started) {
		return nil
	}
	return r.start.begin()
}

// Began is called right after the step by which the work begins: see [Run.Begin].
func (r *Run) Began() {
	if r.start != nil {
		r.start.confirm()
	}
}

// unstarted returns why the work of a try has never begun, if that is no outcome of the run: this replica was not able to begin it, or not in time.
func (s *start) unstarted(result Result, cause error) error {
	switch {
	case s.is(started):
		return nil
	case s.is(calledOff) && (errors.Is(cause, errStartTimeout) || errors.Is(cause, ErrTimeout)):
		if errors.Is(result.Err, ErrNotStarted) && !errors.Is(result.Err, errCalledOff) {
			return fmt.Errorf("%w: %w", errStartTimeout, result.Err)
		}
		return errStartTimeout
	case errors.Is(result.Err, ErrNotStarted) && (cause == nil || errors.Is(cause, errStartTimeout)):
		return result.Err
	}
	return nil
}
