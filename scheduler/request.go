package scheduler

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/election"
)

// A Request asks the cluster for one run of a job outside its schedule. Times are by the clock of Redis.
type Request struct {
	ID, Job string
	// Tick, if not zero, is a past tick of the job that is to run again. It must be an instant of the job's schedule.
	Tick time.Time
	// No replica starts the run at Expires or later.
	Created, Expires time.Time
}

// An Answer reports the progress of a [Request]. An empty Outcome means that Replica has taken the request and waits for a slot.
type Answer struct {
	Request string
	// Outcome is Running when the run was started. Skipped, Missed and Failed mean that the request is decided without a run, for the given Reason.
	Outcome        Outcome
	Reason         string
	Replica, RunID string
}

// Requests delivers the trigger requests of users.
type Requests interface {
	// Subscribe calls f with requests, from one goroutine, until ctx ends. It may pass the same request several times.
	Subscribe(ctx context.Context, f func([]Request))
	// ClaimTrigger grants a request to at most one replica at a time: see [election.Elector.ClaimTrigger].
	ClaimTrigger(ctx context.Context, pendingRequest election.TriggerRequest) election.Result
	// Answer sends an answer to the requester. It must return soon, and must be safe for concurrent use.
	Answer(ctx context.Context, a Answer) error
}
