package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/script"
)

// Remove deletes locks with a ledger, which otherwise never expire, after the work that they guarded is gone:
// all that the server has of each, unless the lock is held, has orphans, is paused, or was used after an instant
// of the server's clock. It returns for each whether it is gone. Another client may still know the lock: if it
// uses the lock again, it treats the server as one that has forgotten. It is not for a quorum.
func (c *Client) Remove(ctx context.Context, locks []string, unusedSince time.Time) (removed []bool, err error) {
	s, err := only[remover](c, "remove locks")
	if err != nil {
		return nil, err
	}
	if err := c.ready(); err != nil {
		return nil, fmt.Errorf("remove locks: %w", err)
	}
	return s.remove(ctx, locks, unusedSince)
}

func (c *single) remove(ctx context.Context, locks []string, unusedSince time.Time) (removed []bool, err error) {
	calls := make([]call, len(locks))
	for i, lock := range locks {
		if err := lease.CheckName(lock); err != nil {
			return nil, fmt.Errorf("remove lock %q: %w", lock, err)
		}
		calls[i] = c.call(c.scripts.Remove, lock, "", true, script.RemoveArgs{UnusedSince: unusedSince}.Encode()...)
	}
	removed = make([]bool, len(locks))
	for i, got := range c.exec(ctx, calls) {
		if got.err != nil {
			err = fmt.Errorf("remove lock %q: %w", locks[i], got.err)
			continue
		}
		if removed[i] = got.verdict == "removed"; removed[i] {
			c.seen.Delete(locks[i]) // else this client would hold what it has asked for against the server
		}
	}
	return removed, err
}
