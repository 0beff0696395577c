package scheduler

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

var (
	// ErrNotStarted is wrapped by the [Result] of a Runner that could not begin its work because this replica lacks something, such as processes or
	// file descriptors. The grant is given back, so that another replica can use it. It counts only if the run has not begun.
	ErrNotStarted = errors.New("not started")
	// errStartTimeout is the cause of the stop of a run whose Runner took too long to begin.
	errStartTimeout = fmt.Errorf("%w within the time for that", ErrNotStarted)
	// errCalledOff is returned to a Runner that begins too late.
	errCalledOff = fmt.Errorf("%w: the run was called off", ErrNotStarted)
)

// A startState is the progress of a try from its grant to its work.
type startState int32

const (
	// preparing: nothing has begun. Either the Runner begins, or the executor calls the run off.
	preparing startState = iota
	// starting: the Runner is in the step that cannot be undone from outside. Only the Runner knows whether it succeeded.
	starting
	// overdue: the Runner is in that step, and the time for it is over. If this process stood still, the Runner's report is about to come.
	overdue
	// started: the work has begun, and the grant is never given back.
	started
	// calledOff: the work never begins.
	calledOff
)

// A start decides, once for each try of a run, between its work and the return of its grant: both leave the state preparing by one compare-and-swap.
type start struct {
	state atomic.Int32
	began func(at time.Time) // called when the work has begun
	now   func() time.Time
	at    time.Time     // when the work began; read after the Runner has returned
	over  chan struct{} // closed when the Runner has returned
}

func (s *start) is(state startState) bool { return startState(s.state.Load()) == state }

// callOff calls the run off if nothing has begun. It reports whether the run is called off, now or before, so that its work never begins.
func (s *start) callOff() bool {
	return s.state.CompareAndSwap(int32(preparing), int32(calledOff)) || s.is(calledOff)
}

// enterStarting moves from preparing to starting.
func (s *start) enterStarting() error {
	if !s.state.CompareAndSwap(int32(preparing), int32(starting)) {
		return errCalledOff
	}
	return nil
}

// markOverdue reports whether the start was under way, and waits for its confirmation from now on beyond its time. It returns true once.
func (s *start) markOverdue() bool { return s.state.CompareAndSwap(int32(starting), int32(overdue)) }

// confirmStarted records that the work has begun.
func (s *start) confirmStarted() {
	if s.state.CompareAndSwap(int32(starting), int32(started)) || s.state.CompareAndSwap(int32(overdue), int32(started)) {
		s.at = s.now()
		s.began(s.at)
	}
}

// beganAt returns the time at which the work of a returned try began, or asked if it never did.
func (s *start) beganAt(asked time.Time) time.Time {
	if s.is(started) {
		return s.at
	}
	return asked
}

// Begin must be called by the Runner of a job with a [Job.StartTimeout], right before the step by which its work begins. An error means that the
// grant was given back meanwhile: the work must not begin, and Run returns the error. After Begin the Runner calls [Run.Began], or returns an error
// that wraps [ErrNotStarted] if the step failed because this replica lacks something. For other jobs Begin does nothing.
func (r *Run) Begin() error {
	if r.start == nil || r.start.is(started) {
		return nil
	}
	return r.start.enterStarting()
}

// Began must be called right after the step by which the work begins: see [Run.Begin].
func (r *Run) Began() {
	if r.start != nil {
		r.start.confirmStarted()
	}
}

// unstartedCause returns the reason for which the work of a try never began, if that is not an outcome of the run: this replica could not begin it, or not
// in time.
func (s *start) unstartedCause(result Result, cause error) error {
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
