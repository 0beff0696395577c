package run

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cronclave/cronclave/election"
)

var (
	// ErrNotStarted is wrapped by the Err of a [Result] if the Runner could not begin its work because this replica lacks a resource, such as processes
	// or file descriptors. The grant is then given back, so that another replica can run the tick. After the work has begun, ErrNotStarted is an
	// ordinary failure.
	ErrNotStarted = errors.New("not started")
	// errStartTimeout is the cause of the stop if the work did not begin within Job.StartTimeout.
	errStartTimeout = fmt.Errorf("%w within the time for that", ErrNotStarted)
	// errCalledOff is returned by Run.Begin if the run was called off before.
	errCalledOff = fmt.Errorf("%w: the run was called off", ErrNotStarted)
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

// A start makes sure that a try either begins its work or gives its grant back, and never both: both leave the state preparing by one
// compare-and-swap.
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

// retryStart is the time for which this replica repeats the failed start of a second or later try. No other replica can run this try, because this
// replica holds the lease.
const retryStart = time.Minute

// retryUnstarted handles a try whose work could not begin. It waits and returns true if the try is to be started again, with the same attempt number.
// It returns false for the first try of a run that another replica can run. last is the try before, or nil.
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

// undoGrant ends the term of a run that never began. It gives the grant back and publishes an event, so that another replica runs the tick. A run
// that no other replica can begin is recorded instead.
func (e *execution) undoGrant(end tryEnd) Ending {
	switch {
	case e.Term == nil:
	case e.Insist.IsZero():
		e.giveBack(end.why.Error())
	default:
		return Ending{Record: e.abandonRequest(), unreturned: end.unreturned}
	}
	return Ending{Unstarted: end.why, unreturned: end.unreturned}
}

// abandonRequest records the outcome of a requested run that never began, because the request expired or the run was stopped.
func (e *execution) abandonRequest() Record {
	e.record.Started, e.record.Finished = time.Time{}, e.x.Now()
	switch why := whyStopped(e.Term); {
	case why != nil:
		e.record.setOutcome(nil, why, false)
	case e.Term.Context().Err() != nil:
		e.record.setOutcome(nil, ErrLost, false)
	case e.x.draining.Err() != nil, e.x.Abort.Err() != nil:
		e.record.setOutcome(nil, ErrDrain, false)
	default:
		e.record.Outcome, e.record.Reason = Missed, ReasonCapacity
	}
	e.recordEnd()
	e.logUnreleased(e.Term.End(context.Background()))
	e.logNotStarted()
	return e.record
}

// giveBack gives back the grant of a tick, and publishes an event, so that replicas which have closed the tick open it again.
func (e *execution) giveBack(reason string) {
	if err := e.Term.Undo(context.Background()); err != nil {
		e.log.Warn("a tick that was not started could not be given back", "reason", reason, "error", err)
		return
	}
	e.log.Info("not started, and given back", "reason", reason)
	if e.x.Publish == nil {
		return
	}
	if err := e.x.Publish(context.Background(), []*election.Term{e.Term}, nil); err != nil {
		e.log.Debug("returned tick not published; other replicas notice it when the lease would have ended", "error", err)
	}
}
