package scheduler

import "errors"

// conclude derives the outcome: of the stop if there was one, else of the result. A failure after the lease has lapsed may be due to that, before this
// replica could see it: this process stood still, and the run was killed.
func (r *Record) conclude(result Result, cause error, lapsed bool) {
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
	case errors.Is(cause, errStartTimeout): // though it has begun, in the last moment
		r.Outcome, r.Reason = Failed, cause.Error()
	case cause != nil:
		r.Outcome, r.Reason = Canceled, "user"
	case result.Err != nil:
		r.Outcome, r.Reason = Failed, result.Err.Error()
	default:
		r.Outcome = OK
	}
}
