package scheduler

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/election"
)

// Request asks the cluster for a run of a job outside its schedule. Times are by the server's clock.
type Request struct {
	ID, Job string
	// Tick is the past tick that is run again on purpose; zero for none. It must be an instant of the job's schedule.
	Tick time.Time
	// No replica starts it at Expires or later.
	Created, Expires time.Time
}

// Answer is the outcome of a [Request], or with an empty Outcome the news that Replica has taken it and waits.
type Answer struct {
	Request string
	// Outcome is Running once it was started. Otherwise it never will be: Skipped, Missed or Failed, with a Reason.
	Outcome        Outcome
	Reason         string
	Replica, RunID string
}

// Requests are what people ask of the cluster.
type Requests interface {
	// Subscribe calls f, from one goroutine, until ctx ends. The same request may come again and again.
	Subscribe(ctx context.Context, f func([]Request))
	// ClaimTrigger gives a request to at most one replica at a time: see [election.Elector.ClaimTrigger].
	ClaimTrigger(ctx context.Context, pendingRequest election.TriggerRequest) election.Result
	// Answer must come back soon. It is called by several goroutines.
	Answer(ctx context.Context, a Answer) error
}
