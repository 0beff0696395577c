package quorum

import (
	"context"
	"fmt"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/rules"
)

// RecordAttempt writes the proposed attempt of a run to the register. It does nothing for a lease that is not accounted for, because such a lease
// leaves no orphan.
func (q *Store) RecordAttempt(row *lease.HeldRow, attempt int64) error {
	if !row.Request.Accounted() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*q.cfg.Timeout)
	defer cancel()
	known, err := q.amendRun(ctx, row, func(_ *rules.Register, run *rules.Run, _ int64) {
		run.Attempt = max(run.Attempt, int(attempt))
	})
	if err == nil && !known {
		err = fmt.Errorf("%w: its run has ended for the others", lease.ErrLost)
	}
	return err
}

// MarkSucceeded records in the register that the work of a lease has succeeded.
func (q *Store) MarkSucceeded(ctx context.Context, row *lease.HeldRow, followed bool) error {
	known, err := q.amendRun(ctx, row, func(g *rules.Register, run *rules.Run, now int64) {
		run.EndedWell = true
		if followed && run.Tick > 0 {
			g.RecordOutcome(run.Tick, true, row.Request.PerTick(), now)
		}
	})
	if err == nil && !known {
		return fmt.Errorf("mark the work under a lease of %q as succeeded: %w", row.Request.Lock, lease.ErrLost)
	}
	return err
}
