package locking

import (
	"context"
	"fmt"
	"time"
)

// Remove removes locks with a ledger, which otherwise never go, of what nobody knows any more: all that the server has of each, unless the lock is
// held, has orphans, is paused, or was used after an instant of the server's clock. It tells of each whether it is gone. Some other client may still know the lock:
// if somebody uses it again there, the server is told of it as one that has forgotten. It is not for a quorum.
func (c *Client) Remove(ctx context.Context, locks []string, unusedSince time.Time) (removed []bool, err error) {
	if err := c.single("remove locks"); err != nil {
		return nil, err
	}
	if err := c.ready(); err != nil {
		return nil, fmt.Errorf("remove locks: %w", err)
	}
	calls := make([]call, len(locks))
	for i, lock := range locks {
		if err := checkName(lock); err != nil {
			return nil, fmt.Errorf("remove lock %q: %w", lock, err)
		}
		calls[i] = c.call(c.scripts.remove, lock, "", true, toMicros(unusedSince))
	}
	removed = make([]bool, len(locks))
	for i, got := range c.exec(ctx, calls) {
		if got.err != nil {
			err = fmt.Errorf("remove lock %q: %w", locks[i], got.err)
			continue
		}
		if removed[i] = got.verdict == "removed"; removed[i] {
			c.seen.drop(locks[i]) // else this client would hold what it has asked for against the server
		}
	}
	return removed, err
}
