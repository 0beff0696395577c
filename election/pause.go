package election

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/locking"
)

// Pause is a time in which the ticks of a job are settled without a run. Triggers by hand and recoveries are not stopped.
type Pause = locking.Pause

// PauseOrder says how jobs are paused.
type PauseOrder struct {
	// For is how long, by the server's clock. Defaults to until the job is resumed.
	For time.Duration
	// Outcome is how ticks are settled. Required.
	Outcome string
	// Reason is for people: one line of at most 200 characters.
	Reason string
}

// Paused is what became of the pause of a job.
type Paused struct {
	Job           string
	Now           time.Time // by the server's clock
	Before, After Pause
	Err           error // cannot tell, or the order was not valid
}

// Pause pauses jobs, in one round trip. A pause that is on is carried on with the new order.
func (e *Elector) Pause(ctx context.Context, jobs []string, order PauseOrder) []Paused {
	return e.pause(ctx, jobs, locking.PauseRequest{For: order.For, Outcome: order.Outcome, Reason: order.Reason})
}

// Resume ends the pauses of jobs, in one round trip. Ticks of paused time are not run any more.
func (e *Elector) Resume(ctx context.Context, jobs []string) []Paused {
	return e.pause(ctx, jobs, locking.PauseRequest{End: true})
}

func (e *Elector) pause(ctx context.Context, jobs []string, r locking.PauseRequest) []Paused {
	requests := make([]locking.PauseRequest, len(jobs))
	for i, job := range jobs {
		requests[i] = r
		requests[i].Lock, requests[i].Permanent = lockOf(job), true
	}
	all := make([]Paused, len(jobs))
	for i, a := range e.locks.Pause(ctx, requests) {
		all[i] = Paused{Job: jobs[i], Now: a.Now, Before: a.Before, After: a.After, Err: Plain(a.Err)}
	}
	return all
}
