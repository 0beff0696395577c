package election

import (
	"context"
	"fmt"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// The reasons for which the holder of a term is asked to stop.
const (
	StopByUser   = "user"     // see [Elector.Cancel]
	StopReplaced = "replaced" // see [Claim.Replace]
)

// Cancel asks the holder of each run of a job, or only of run if it is not "", to stop, and returns the runs whose holders will stop them: see
// [Term.Stopping]. It does not wait until they have stopped.
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

// stopReplaced stops runs for the claims that found all slots held. A lost request is repeated with the claim.
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

// Stopping returns a channel that is closed when the holder is asked to stop its work. [Term.StopReason] has the reason. The term lasts until
// [Term.End].
func (t *Term) Stopping() <-chan struct{} { return engine.RunOf(t.lease).Stopping() }

// StopReason returns the reason for which the holder is asked to stop, or "" if it is not.
func (t *Term) StopReason() string { return engine.RunOf(t.lease).StopReason() }
