package scheduler

import "errors"

// setOutcome sets the outcome of a run from the cause of its stop, or from the result if it was not stopped. A failure after the lease has expired
// counts as lost, because the run may have been killed while this process stood still.
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
	case errors.Is(cause, errStartTimeout): // the run was stopped for its StartTimeout, but the work began before the stop
		r.Outcome, r.Reason = Failed, cause.Error()
	case cause != nil:
		r.Outcome, r.Reason = Canceled, "user"
	case result.Err != nil:
		r.Outcome, r.Reason = Failed, result.Err.Error()
	default:
		r.Outcome = OK
	}
}
