package run

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// A startState is the progress of a try before its work begins.
type startState int32

const (
	// preparing: Run.Begin was not called yet. From this state, either the Runner moves to starting or the executor moves to calledOff.
	preparing startState = iota
	// starting: Run.Begin was called, and the Runner is in the step by which the work begins. The executor cannot see whether this step has succeeded.
	starting
	// overdue: like starting, but Job.StartTimeout has passed. The executor waits a little longer, because this process may have stood still.
	overdue
	// started: the work has begun, and the grant is never given back.
	started
	// calledOff: the executor called the try off, and its work never begins.
	calledOff
)

// A start ensures that a try that was called off never begins its work. The Runner must move the state from preparing to starting, and the executor
// calls a try off by a move from preparing to calledOff. Only one of these two compare-and-swaps can succeed.
type start struct {
	state atomic.Int32
	began func(at time.Time) // called when the work has begun
	now   func() time.Time
	at    time.Time     // the time at which the work began; read only after the Runner has returned
	over  chan struct{} // closed when the Runner has returned
}

func (s *start) is(state startState) bool { return startState(s.state.Load()) == state }

// callOff calls the try off if it is still preparing. It reports whether the try is called off, by this call or before.
func (s *start) callOff() bool {
	return s.state.CompareAndSwap(int32(preparing), int32(calledOff)) || s.is(calledOff)
}

func (s *start) enterStarting() error {
	if !s.state.CompareAndSwap(int32(preparing), int32(starting)) {
		return errCalledOff
	}
	return nil
}

// markOverdue moves from starting to overdue when the time for the start has passed, and reports whether it did. The Runner then has
// startConfirmGrace to confirm the start.
func (s *start) markOverdue() bool { return s.state.CompareAndSwap(int32(starting), int32(overdue)) }

func (s *start) confirmStarted() {
	if s.state.CompareAndSwap(int32(starting), int32(started)) || s.state.CompareAndSwap(int32(overdue), int32(started)) {
		s.at = s.now()
		s.began(s.at)
	}
}

// beganAt returns the time at which the work of a try began, or asked if the work never began. The Runner must have returned.
func (s *start) beganAt(asked time.Time) time.Time {
	if s.is(started) {
		return s.at
	}
	return asked
}

// unstartedCause returns the reason if the work of a try never began because this replica could not begin it, or not in time. It returns nil if the
// work has begun, or if the try was stopped for another reason.
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
