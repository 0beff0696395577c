package cluster

import (
	"errors"
	"fmt"

	"github.com/cronclave/cronclave/internal/journal"
)

// The reasons for failed operations, for errors.Is. The text of an error has more detail, and does not need the reason.
var (
	// ErrUnavailable means that Redis did not answer, or refused a command. The error is an [UnavailableError].
	ErrUnavailable = errors.New("redis is unavailable")
	// ErrInvalid means that a request can never succeed, whatever the state of the cluster.
	ErrInvalid = errors.New("invalid request")
	// ErrUnknownJob means that no configuration and no replica has the job. The error is an [UnknownJobError].
	ErrUnknownJob = errors.New("unknown job")
	// ErrUnknownTag means that no known job has the tag.
	ErrUnknownTag = errors.New("unknown tag")
	// ErrNoJobs means that no job is known at all.
	ErrNoJobs = errors.New("no jobs")
	// ErrUnknownRun means that the job has no such run.
	ErrUnknownRun = errors.New("unknown run")
	// ErrNotATick means that an instant is not a tick of the job's schedule.
	ErrNotATick = errors.New("not a tick")
	// ErrDisabled means that the job is not enabled, so no replica runs it.
	ErrDisabled = errors.New("disabled job")
	// ErrNoReplica means that no replica can run the job now.
	ErrNoReplica = errors.New("no replica for the job")
	// ErrTooMany means that too many trigger requests are waiting, or that the user has requested too many acts.
	ErrTooMany = journal.ErrTooMany
	// ErrNotStarted means that the context ended before a run was started.
	ErrNotStarted = errors.New("not started")
)

// An UnavailableError means that an operation failed because of Redis.
type UnavailableError struct {
	// Doing is the operation, such as "read the history".
	Doing string
	// Err is the cause.
	Err error
}

func unavailableError(doing string, err error) error { return &UnavailableError{doing, err} }

func (e *UnavailableError) Error() string { return e.Doing + ": " + e.Err.Error() }

// Unwrap returns ErrUnavailable and the cause.
func (e *UnavailableError) Unwrap() []error { return []error{ErrUnavailable, e.Err} }

// An UnknownJobError names an unknown job.
type UnknownJobError struct {
	Job string
	// Suggestion is the name that was probably meant; "" if none is close.
	Suggestion string
	// Removed is set if the job is unknown but has runs in the history.
	Removed bool
}

// UnknownJob returns the error for a job that is not among known, with a suggestion.
func UnknownJob(job string, known []string) *UnknownJobError {
	return &UnknownJobError{Job: job, Suggestion: Nearest(job, known)}
}

func (e *UnknownJobError) Error() string {
	switch {
	case e.Removed:
		return fmt.Sprintf("job %q has runs in the history but is no longer configured, here or on any replica", e.Job)
	case e.Suggestion != "":
		return fmt.Sprintf("no job %q; did you mean %q?", e.Job, e.Suggestion)
	}
	return fmt.Sprintf("no job %q", e.Job)
}

// Unwrap returns ErrUnknownJob.
func (e *UnknownJobError) Unwrap() error { return ErrUnknownJob }

// A refusal is an error with a reason for errors.Is. Its text is the text of its cause.
type refusal struct{ reason, cause error }

func refusalError(reason error, format string, args ...any) error {
	return &refusal{reason, fmt.Errorf(format, args...)}
}

func (r *refusal) Error() string   { return r.cause.Error() }
func (r *refusal) Unwrap() []error { return []error{r.reason, r.cause} }
