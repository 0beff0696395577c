package election

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// A Pause is a time in which the ticks of a job are settled without a run. It does not stop manual runs or recoveries.
type Pause = engine.Pause

// A PauseOrder describes a pause.
type PauseOrder struct {
	// For is the length of the pause by the server's clock. Zero lasts until the job is resumed.
	For time.Duration
	// Outcome is the outcome of the ticks in the pause. Required.
	Outcome string
	// Reason is for people: one line of at most 200 characters.
	Reason string
	// By is the user who wants the pause, for people.
	By string
}

// Validate returns an error if the order is invalid.
func (o PauseOrder) Validate() error { return o.pauseRequest().Validate() }

func (o PauseOrder) pauseRequest() engine.PauseRequest {
	return engine.PauseRequest{For: o.For, Outcome: o.Outcome, Reason: o.Reason, By: o.By}
}

// A Paused is the result of a pause, or of its end, for one job.
type Paused struct {
	Job           string
	Now           time.Time // by the server's clock
	Before, After Pause
	Err           error // the result is unknown, or the order was not valid
}

// Pause pauses jobs, in one round trip. If a job is paused already, the new order replaces the old one.
func (e *Elector) Pause(ctx context.Context, jobs []string, order PauseOrder) []Paused {
	return e.pauseJobs(ctx, jobs, order.pauseRequest())
}

// Resume ends the pauses of jobs, in one round trip. The ticks of paused time are not run any more.
func (e *Elector) Resume(ctx context.Context, jobs []string) []Paused {
	return e.pauseJobs(ctx, jobs, engine.PauseRequest{End: true})
}

func (e *Elector) pauseJobs(ctx context.Context, jobs []string, r engine.PauseRequest) []Paused {
	requests := make([]engine.PauseRequest, len(jobs))
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
