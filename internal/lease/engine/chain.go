package engine

import (
	"context"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/script"
)

// ReleaseWith is [Lease.Release] with word of how the work ended, for the locks whose ticks follow those of this one. The lock keeps it until all
// followers have used it: see [InspectRequest.Follower]. The outcome of a tick is that of its last lease; of one with several grants the worst.
func (l Run) ReleaseWith(ctx context.Context, well bool) error {
	if l.row.Grant.Tick == 0 {
		return l.Release(ctx)
	}
	return l.release(ctx, lease.ReleaseRequest{Outcome: script.OutcomeOf(well)})
}

// MarkSucceeded records in the lock that the work has ended well. The holder calls it when the work is over and
// before it releases the lease: if the holder dies in between, its orphan carries the mark ([Row.EndedWell]).
// With followed, the followers of its tick are notified as well, as with [Run.ReleaseWith]. An error means that
// the server may not have recorded it.
func (l Run) MarkSucceeded(ctx context.Context, followed bool) error {
	return l.client.store.MarkSucceeded(ctx, &l.row, followed)
}
