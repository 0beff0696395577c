package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/script"
)

// Remove deletes locks that are no longer used.
func (c *Store) Remove(ctx context.Context, locks []string, unusedSince time.Time) (removed []bool, err error) {
	calls := make([]call, len(locks))
	for i, lock := range locks {
		if err := lease.CheckName(lock); err != nil {
			return nil, fmt.Errorf("remove lock %q: %w", lock, err)
		}
		calls[i] = c.newCall(c.scripts.Remove, lock, "", true, script.RemoveArgs{UnusedSince: unusedSince}.Encode()...)
	}
	removed = make([]bool, len(locks))
	for i, got := range c.execCalls(ctx, calls) {
		if got.err != nil {
			err = fmt.Errorf("remove lock %q: %w", locks[i], got.err)
			continue
		}
		if removed[i] = got.verdict == "removed"; removed[i] {
			c.cfg.Observed.Delete(locks[i]) // otherwise this client would later assume that Redis has lost the lock's data
		}
	}
	return removed, err
}
