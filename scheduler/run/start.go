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
	// overdue: like starting, after Job.StartTimeout. The executor waits a little longer, because this process may have stood still.
	overdue
	// started: the work has begun, and the grant is never given back.
	started
	// calledOff: the executor called the try off, and its work never begins.
	calledOff
)

// A start makes sure that a try never begins its work and also gives its grant back: for either of the two, the state must change from preparing, by
// a compare-and-swap, which succeeds only once.
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

// markOverdue moves from starting to overdue: the time for the start is over, and its confirmation is awaited a little longer. It returns false if
// the start is not under way, or was overdue before.
func (s *start) markOverdue() bool { return s.state.CompareAndSwap(int32(starting), int32(overdue)) }

func (s *start) confirmStarted() {
	if s.state.CompareAndSwap(int32(starting), int32(started)) || s.state.CompareAndSwap(int32(overdue), int32(started)) {
		s.at = s.now()
		s.began(s.at)
	}
}

// beganAt returns the time at which the work of a returned try began, or asked if it never began.
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
