package election

import (
	"context"
	"fmt"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// The values of [Term.StopReason].
const (
	StopByUser   = "user"     // see [Elector.Cancel]
	StopReplaced = "replaced" // see [Claim.Replace]
)

// Cancel requests the stop of all runs of a job, or only of the given run if run is not "". It returns the runs for which the server has accepted the
// request: their holders are notified through [Term.Stopping]. Cancel does not wait until the runs have stopped.
func (e *Elector) Cancel(ctx context.Context, job, run string) ([]Run, error) {
	state := e.Inspect(ctx, []InspectRequest{{Job: job}})[0]
	if state.Err != nil {
		return nil, fmt.Errorf("cancel job %s: %w", job, state.Err)
	}
	var asked []Run
	var requests []engine.StopRequest
	for _, r := range state.Running {
		if run == "" || r.ID == run {
			asked = append(asked, r)
			requests = append(requests, engine.StopRequest{Lock: lockOf(job), Permanent: true, ID: r.ID, Reason: StopByUser})
		}
	}
	var told []Run
	for i, a := range e.locks.Stop(ctx, requests) {
		if a.Err != nil {
			return told, fmt.Errorf("cancel job %s: run %s: %w", job, asked[i].ID, Plain(a.Err))
		}
		if a.ID != "" {
			told = append(told, asked[i])
		}
	}
	return told, nil
}

// stopReplaced requests the stop of a run for each claim with Replace that found all slots held. Errors are ignored, because the next claim of the
// tick repeats the request.
func (e *Elector) stopReplaced(ctx context.Context, claims []Claim, results []Result) {
	var requests []engine.StopRequest
	for i, c := range claims {
		if c.Replace && results[i].Verdict == Held {
			requests = append(requests, engine.StopRequest{Lock: lockOf(c.Job), Permanent: true, Reason: StopReplaced,
				Slots: c.Slots, Tick: c.Tick, From: c.NotBefore})
		}
	}
	if len(requests) > 0 {
		e.locks.Stop(ctx, requests)
	}
}

// Stopping returns a channel that is closed when the holder is asked to stop its work. [Term.StopReason] returns the reason. The term goes on until
// [Term.End].
func (t *Term) Stopping() <-chan struct{} { return engine.RunOf(t.lease).Stopping() }

// StopReason returns the reason for which the holder was asked to stop, or "" if it was not asked.
func (t *Term) StopReason() string { return engine.RunOf(t.lease).StopReason() }
