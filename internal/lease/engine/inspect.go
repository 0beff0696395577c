package engine

import (
	"cmp"
	"context"
	"fmt"

	"github.com/cronclave/cronclave/internal/lease"
)

// Inspect returns the states of many locks in one round trip. Before that, it frees the rows of leases that have ended. Runs with a trigger become
// orphans.
func (c *Client) Inspect(ctx context.Context, locks []InspectRequest) []State {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	check := func(l InspectRequest) error { return cmp.Or(lease.CheckName(l.Lock), l.Validate(), c.work.Ready()) }
	refuse := func(l InspectRequest, err error) State {
		return State{Err: fmt.Errorf("look at %q: %w", l.Lock, err)}
	}
	return askValid(locks, check, refuse, func(valid []InspectRequest) []State { return c.store.Inspect(ctx, valid) })
}

// DeleteOrphans deletes orphans whose outcome was recorded.
func (c *Client) DeleteOrphans(ctx context.Context, lock string, ids ...string) error {
	if err := lease.CheckName(lock); err != nil {
		return fmt.Errorf("delete orphans of %q: %w", lock, err)
	}
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if err := c.store.DeleteOrphans(ctx, lock, ids); err != nil {
		return fmt.Errorf("delete orphans of %q: %w", lock, err)
	}
	return nil
}
