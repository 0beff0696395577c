package engine

import (
	"context"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/script"
)

// ReleaseWith is [Lease.Release] for a run that others follow: well, which is kept for them, is true if the run succeeded. The lock keeps it until
// all followers have used it: see [lease.InspectRequest]. The outcome of a tick is the outcome of its last lease, or the worst outcome if it has
// several grants.
func (l Run) ReleaseWith(ctx context.Context, well bool) error {
	if l.row.Grant.Tick == 0 {
		return l.Release(ctx)
	}
	return l.releaseAs(ctx, lease.ReleaseRequest{Outcome: script.OutcomeOf(well)})
}

// MarkSucceeded records in the lock that the work has ended well. The holder calls it when the work is over and before it releases the lease: if the
// holder dies in between, its orphan has the mark ([lease.Row]). With followed, the followers of the tick are notified as well, as with
// [Run.ReleaseWith]. An error means that the server may not have recorded it.
func (l Run) MarkSucceeded(ctx context.Context, followed bool) error {
	return l.client.store.MarkSucceeded(ctx, &l.row, followed)
}
