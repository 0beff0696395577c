package scheduler

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/election"
)

// A Request asks the cluster for a run of a job outside its schedule. Times are by the server's clock.
type Request struct {
	ID, Job string
	// Tick is a past tick that is to run again; zero for none. It must be an instant of the job's schedule.
	Tick time.Time
	// No replica starts the request at Expires or later.
	Created, Expires time.Time
}

// An Answer is the outcome of a [Request]. With an empty Outcome it reports that Replica has taken the request and waits.
type Answer struct {
	Request string
	// Outcome is Running once the run was started. With Skipped, Missed or Failed, and a Reason, it never will be.
	Outcome        Outcome
	Reason         string
	Replica, RunID string
}

// Requests delivers the trigger requests of users.
type Requests interface {
	// Subscribe calls f with requests, from one goroutine, until ctx ends. The same request may come several times.
	Subscribe(ctx context.Context, f func([]Request))
	// ClaimTrigger grants a request to at most one replica at a time: see [election.Elector.ClaimTrigger].
	ClaimTrigger(ctx context.Context, pendingRequest election.TriggerRequest) election.Result
	// Answer sends an answer to the requester. It must return soon, and must be safe for concurrent use.
	Answer(ctx context.Context, a Answer) error
}
