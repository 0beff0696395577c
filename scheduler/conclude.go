package scheduler

import "errors"

// setOutcome sets the outcome: from the cause of the stop if there was one, otherwise from the result. A failure after the lease has lapsed counts as
// lost: this process may have stood still while the run was killed.
func (r *Record) setOutcome(result Result, cause error, lapsed bool) {
	r.ExitCode, r.Signal, r.Output, r.OutputCut = result.ExitCode, result.Signal, result.Output, result.OutputCut
	r.Detail = result.LeftBehind
	if cause == nil && result.Err != nil && (lapsed || errors.Is(result.Err, ErrLost)) {
		cause = ErrLost
	}
	switch {
	case errors.Is(cause, ErrTimeout):
		r.Outcome = TimedOut
	case errors.Is(cause, ErrDrain):
		r.Outcome, r.Reason = Canceled, reasonDrain
	case errors.Is(cause, ErrReplaced):
		r.Outcome, r.Reason = Canceled, "replaced"
	case errors.Is(cause, ErrLost):
		r.Outcome = Lost
	case errors.Is(cause, errStartTimeout): // the work began at the last moment
		r.Outcome, r.Reason = Failed, cause.Error()
	case cause != nil:
		r.Outcome, r.Reason = Canceled, "user"
	case result.Err != nil:
		r.Outcome, r.Reason = Failed, result.Err.Error()
	default:
		r.Outcome = OK
	}
}
