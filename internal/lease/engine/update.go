package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/redis"
)

// A Tx is one try of an update.
type Tx = redis.Tx

// Update changes keys without a lock (optimistic locking). change reads the keys and queues writes. The writes take effect in one step, unless
// another client has changed one of the keys meanwhile; then Update calls change again. See package locking.
func (c *Client) Update(ctx context.Context, keys []string, change func(tx *Tx) error) error {
	s, err := storeAs[updater](c.store, "update")
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		return errors.New("update: there are no keys to watch")
	}
	for retry := backoff.New(2*time.Millisecond, 250*time.Millisecond); ; {
		if ctx.Err() != nil {
			return fmt.Errorf("update %s: %w", lease.QuoteNames(keys), context.Cause(ctx))
		}
		again, err := s.Update(ctx, keys, change)
		if !again {
			return err
		}
		if !retry.Wait(ctx) {
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
	}
}
