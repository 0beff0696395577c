package engine

import (
	"context"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/script"
)

// ReleaseWith is [Lease.Release] for a run that followers depend on. well is true if the run succeeded. The lock keeps this outcome until all
// followers have used it: see [lease.InspectRequest]. The outcome of a tick is the outcome of its last lease, or the worst outcome if the tick has
// several grants.
func (l Run) ReleaseWith(ctx context.Context, well bool) error {
	if l.row.Grant.Tick == 0 {
		return l.Release(ctx)
	}
	return l.releaseAs(ctx, lease.ReleaseRequest{Outcome: script.OutcomeOf(well)})
}

// MarkSucceeded records in the lock that the work has succeeded. The holder calls it after the work and before the release. If the holder dies before
// the release, its orphan has [lease.Row.EndedWell] set. With followed, MarkSucceeded also records the outcome of the tick for its followers, like
// [Run.ReleaseWith]. After an error, Redis may or may not have recorded the success.
func (l Run) MarkSucceeded(ctx context.Context, followed bool) error {
	return l.client.store.MarkSucceeded(ctx, &l.row, followed)
}
