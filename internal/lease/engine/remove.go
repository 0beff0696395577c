package engine

import (
	"context"
	"fmt"
	"time"
)

// Remove deletes locks with a ledger, which otherwise never expire, after the work that they guarded is gone:
// all that the server has of each, unless the lock is held, has orphans, is paused, or was used after an instant
// of the server's clock. It returns for each whether it is gone. Another client may still know the lock: if it
// uses the lock again, it treats the server as one that has forgotten. It is not for a quorum.
func (c *Client) Remove(ctx context.Context, locks []string, unusedSince time.Time) (removed []bool, err error) {
	s, err := only[remover](c.store, "remove locks")
	if err != nil {
		return nil, err
	}
	if err := c.work.Ready(); err != nil {
		return nil, fmt.Errorf("remove locks: %w", err)
	}
	return s.Remove(ctx, locks, unusedSince)
}
