package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/cronclave/cronclave/internal/lease"
)

// Lock waits until the caller holds the mutex, first come, first served, or ctx ends: see [Semaphore.Acquire].
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) { return m.sem.Acquire(ctx) }

// Acquire waits for a row in the lock's queue, which is served in order: a release hands the row to the first in line and notifies only that waiter.
// See package locking.
func (s *Semaphore) Acquire(ctx context.Context) (*Lease, error) {
	r := s.newRequest()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("lock %q: %w", r.Lock, context.Cause(ctx))
	}
	if !s.client.work.Begin() { // Close waits for it
		return nil, fmt.Errorf("lock %q: %w", r.Lock, ErrClosed)
	}
	defer s.client.work.Done()
	return s.client.waitForRow(ctx, r)
}

// waitForRow waits for a row, and returns its lease.
func (c *Client) waitForRow(ctx context.Context, r Request) (*Lease, error) {
	if err := errors.Join(r.Validate(), lease.CheckName(r.Lock)); err != nil {
		return nil, fmt.Errorf("lock %q: %w", r.Lock, err)
	}
	began := c.cfg.Clock()
	g, err := c.store.Wait(ctx, r)
	if err != nil {
		c.withdrawRequest(r)
		return nil, fmt.Errorf("lock %q: %w", r.Lock, err)
	}
	l := c.keeper.add(newLease(c, &r, &g))
	c.cfg.Hooks.reportWait(r.Lock, c.cfg.Clock()-began)
	return l, nil
}

// AcquireConfirmed is [Semaphore.Acquire] for work that takes time to stop. It returns the lease once the lease has its full length. See package
// locking.
func (s *Semaphore) AcquireConfirmed(ctx context.Context) (*Lease, error) {
	if s.client.work.Begin() { // if not, Acquire fails
		defer s.client.work.Done()
	}
	for {
		lease, err := s.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		select {
		case <-lease.Confirmed():
			return lease, nil
		case <-lease.Context().Done():
			lost := s.request.WithDefaults()
			lost.ID = lease.ID()
			s.client.withdrawRequest(lost) // a renewal whose reply was lost may have extended the lease
		}
	}
}
