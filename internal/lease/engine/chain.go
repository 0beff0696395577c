package engine

import (
	"cmp"
	"context"
	"fmt"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/register"
	"github.com/cronclave/cronclave/internal/lease/script"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// ReleaseWith is [Lease.Release] with word of how the work ended, for the locks whose ticks follow those of this one. The lock keeps it until all
// followers have used it: see [InspectRequest.Follower]. The outcome of a tick is that of its last lease; of one with several grants the worst.
func (l Run) ReleaseWith(ctx context.Context, well bool) error {
	if l.tick == 0 {
		return l.Release(ctx)
	}
	return l.release(ctx, releaseCall{outcome: script.OutcomeOf(well)})
}

// MarkSucceeded records in the lock that the work has ended well. The holder calls it when the work is over and
// before it releases the lease: if the holder dies in between, its orphan carries the mark ([Row.EndedWell]).
// With followed, the followers of its tick are notified as well, as with [Run.ReleaseWith]. An error means that
// the server may not have recorded it.
func (l Run) MarkSucceeded(ctx context.Context, followed bool) error {
	return l.client.store.markSucceeded(ctx, l.Lease, followed)
}

func (c *single) markSucceeded(ctx context.Context, l *Lease, followed bool) error {
	got := c.exec(ctx, []call{c.call(c.scripts.MarkSucceeded, l.lock, l.id, l.permanent,
		script.MarkSucceededArgs{PerTick: l.perTick, Followed: followed}.Encode()...)})[0]
	switch {
	case got.verdict == "noted":
		return nil
	case got.verdict == "late":
		got.err = fmt.Errorf("%w: the request reached the server too late", ErrUnknown)
	}
	return fmt.Errorf("tell that the work under a lease of %q has ended: %w", l.lock, cmp.Or(got.err, ErrLost))
}

// markSucceeded enters it in the register.
func (q *quorum) markSucceeded(ctx context.Context, l *Lease, followed bool) error {
	known, err := q.amend(ctx, l, func(g *register.Register, run *register.Run, now int64) {
		run.EndedWell = true
		if followed && run.Tick > 0 {
			g.RecordOutcome(run.Tick, true, l.perTick, now)
		}
	})
	if err == nil && !known {
		return fmt.Errorf("tell that the work under a lease of %q has ended: %w", l.lock, ErrLost)
	}
	return err
}

// followed is the message of a lock to its followers.
func followed(s *State, got reply) {
	s.Through = clock.FromMicros(got.Number(6) * 1e6)
	list := got.List(7)
	for i := 0; i+1 < len(list); i += 2 {
		s.Ended = append(s.Ended, Ended{Tick: clock.FromMicros(transport.Number(list[i]) * 1e6), Due: clock.FromMicros(transport.Number(list[i+1]))})
	}
	lease.SortEnded(s.Ended)
}
