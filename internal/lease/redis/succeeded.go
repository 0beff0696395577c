package redis

import (
	"cmp"
	"context"
	"fmt"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/script"
)

// MarkSucceeded records that the work of a lease has succeeded.
func (c *Store) MarkSucceeded(ctx context.Context, row *lease.HeldRow, followed bool) error {
	r := &row.Request
	got := c.execCalls(ctx, []call{c.newCall(c.scripts.MarkSucceeded, r.Lock, r.ID, r.Permanent,
		script.MarkSucceededArgs{PerTick: r.PerTick(), Followed: followed}.Encode()...)})[0]
	switch {
	case got.verdict == "noted":
		return nil
	case got.verdict == "late":
		got.err = fmt.Errorf("%w: the request reached the server too late", lease.ErrUnknown)
	}
	return fmt.Errorf("mark the work under a lease of %q as succeeded: %w", r.Lock, cmp.Or(got.err, lease.ErrLost))
}
