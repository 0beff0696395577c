package election

import (
	"context"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// The values of [Term.StopReason].
const (
	StopByUser   = "user"     // requested by [Elector.Cancel]
	StopReplaced = "replaced" // requested by a claim whose tick has Replace set
)

// Cancel requests the stop of all runs of a job, or only of the given run if run is not "". It returns the runs for which the server has accepted the
// request. Their holders see the request through [Term.Stopping]. Cancel does not wait until the runs have stopped.
func (e *Elector) Cancel(ctx context.Context, job, run string) ([]Run, error) {
	state := e.Inspect(ctx, []InspectRequest{{Lock: JobLock(job)}})[0]
	if state.Err != nil {
		return nil, fmt.Errorf("cancel job %s: %w", job, state.Err)
	}
	var asked []Run
	var requests []lease.StopRequest
	for _, r := range state.Running {
		if run == "" || r.ID == run {
			asked = append(asked, r)
			requests = append(requests, lease.StopRequest{Lock: JobLock(job), Permanent: true, ID: r.ID, Reason: StopByUser})
		}
	}
	var accepted []Run
	for i, a := range e.locks.Stop(ctx, requests) {
		if a.Err != nil {
			return accepted, fmt.Errorf("cancel job %s: run %s: %w", job, asked[i].ID, Plain(a.Err))
		}
		if a.ID != "" {
			accepted = append(accepted, asked[i])
		}
	}
	return accepted, nil
}

// stopReplaced requests the stop of a run for each claim with Replace that found all slots held. Errors are ignored, because the next claim of the
// tick repeats the request.
func (e *Elector) stopReplaced(ctx context.Context, claims []Claim, results []Result) {
	var requests []lease.StopRequest
	for i, c := range claims {
		if c.Tick != nil && c.Tick.Replace && results[i].Verdict == Held {
			requests = append(requests, lease.StopRequest{Lock: c.Lock, Permanent: true, Reason: StopReplaced,
				Slots: c.Slots, Tick: c.Tick.At, From: c.Tick.NotBefore})
		}
	}
	if len(requests) > 0 {
		e.locks.Stop(ctx, requests)
	}
}

// A Pause is a period in which the ticks of a job are settled without a run. Manual runs and recoveries go on.
type Pause = lease.Pause

// A PauseOrder describes a pause.
type PauseOrder struct {
	// For is the length of the pause by the server's clock. If it is zero, the pause lasts until the job is resumed.
	For time.Duration
	// Outcome is the outcome of the ticks in the pause. Required.
	Outcome string
	// Reason is for display only: one line of at most 200 characters.
	Reason string
	// By is the user who requested the pause, for display only.
	By string
}

// Validate returns an error if the order is invalid.
func (o PauseOrder) Validate() error { return o.pauseRequest().Validate() }

func (o PauseOrder) pauseRequest() lease.PauseRequest {
	return lease.PauseRequest{For: o.For, Outcome: o.Outcome, Reason: o.Reason, By: o.By}
}

// A Paused is the result of [Elector.Pause] or [Elector.Resume] for one job.
type Paused struct {
	Job           string
	Now           time.Time // by the server's clock
	Before, After Pause
	Err           error // the order was invalid, or the result is unknown
}

// Pause pauses jobs in one round trip. If a job is already paused, the new order replaces the old one.
func (e *Elector) Pause(ctx context.Context, jobs []string, order PauseOrder) []Paused {
	return e.pauseJobs(ctx, jobs, order.pauseRequest())
}

// Resume ends the pauses of jobs in one round trip. Ticks that were due during the pause do not run later.
func (e *Elector) Resume(ctx context.Context, jobs []string) []Paused {
	return e.pauseJobs(ctx, jobs, lease.PauseRequest{End: true})
}

// TakePause gives a job the pause of another job, unless its own pause was changed later. The end of a pause is a change, too.
func (e *Elector) TakePause(ctx context.Context, from, job string) error {
	return Plain(e.locks.TakePause(ctx, JobLock(from), JobLock(job)))
}

func (e *Elector) pauseJobs(ctx context.Context, jobs []string, r lease.PauseRequest) []Paused {
	requests := make([]lease.PauseRequest, len(jobs))
	for i, job := range jobs {
		requests[i] = r
		requests[i].Lock, requests[i].Permanent = JobLock(job), true
	}
	all := make([]Paused, len(jobs))
	for i, a := range e.locks.Pause(ctx, requests) {
		all[i] = Paused{Job: jobs[i], Now: a.Now, Before: a.Before, After: a.After, Err: Plain(a.Err)}
	}
	return all
}
