package engine

import (
	"context"
	"fmt"
	"time"
)

// Remove deletes locks with a ledger, which otherwise never expire, after the work that they guarded is gone. It deletes all data of each lock,
// unless the lock is held, has orphans, is paused, or was used after unusedSince, by the server's clock. removed reports for each lock whether it is
// gone. Another client may still know the lock: if it uses the lock again, it takes the server for one that has forgotten. Remove does not work on a
// quorum.
func (c *Client) Remove(ctx context.Context, locks []string, unusedSince time.Time) (removed []bool, err error) {
	s, err := storeAs[remover](c.store, "remove locks")
	if err != nil {
		return nil, err
	}
	if err := c.work.Ready(); err != nil {
		return nil, fmt.Errorf("remove locks: %w", err)
	}
	return s.Remove(ctx, locks, unusedSince)
}
