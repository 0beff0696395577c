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

// A Fence stores in Redis the greatest token that was used with a resource, and refuses smaller tokens. See package locking.
type Fence struct {
	client   *Client
	resource string
	idle     time.Duration
}

// A FenceOption is an option of a [Fence].
type FenceOption func(*Fence)

// ForgetAfter lets Redis forget a fence that no caller has used for idle. See package locking.
func ForgetAfter(idle time.Duration) FenceOption { return func(f *Fence) { f.idle = idle } }

// Fence returns the fence of a resource. See package locking.
func (c *Client) Fence(resource string, options ...FenceOption) *Fence {
	f := &Fence{client: c, resource: resource}
	for _, o := range options {
		o(f)
	}
	return f
}

// Pass records the token and returns nil if no greater token was recorded before. The same token may pass any number of times. See package locking.
func (f *Fence) Pass(ctx context.Context, token Token) error {
	if err := f.passToken(ctx, token); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

func (f *Fence) passToken(ctx context.Context, token Token) error {
	s, err := storeAs[fencer](f.client.store, "pass the fence of "+f.resource)
	if err != nil {
		return err
	}
	if err := errors.Join(lease.CheckName(f.resource), lease.CheckToken(token), f.client.work.Ready()); err != nil {
		return err
	}
	if f.idle < 0 {
		return fmt.Errorf("resource %q: ForgetAfter must not be negative", f.resource)
	}
	return s.Pass(ctx, f.resource, f.idle, token)
}

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
