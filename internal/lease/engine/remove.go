package engine

import (
	"context"
	"fmt"
	"time"
)

// Remove deletes permanent locks that are no longer needed, because they never expire. It deletes all data of each lock, unless the lock is held, has
// orphans, is paused, or was used after unusedSince, by Redis's clock. removed reports for each lock whether it was deleted. Another client that uses
// a deleted lock again assumes that Redis has lost the lock's data. Remove does not work on a quorum.
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
