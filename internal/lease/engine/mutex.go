package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// Mutex is a lock with one row.
type Mutex struct{ sem Semaphore }

// Semaphore is a lock with a number of rows, so that up to as many leases are held at once. See package locking.
type Semaphore struct {
	client  *Client
	request Request
	work    string
}

// workMark stands between what a lease is for and the rest of its id.
const workMark = "."

// For has the ids of the leases begin with the id of what they are for, which [WorkOf] finds in the rows of the lock. That id is without dots.
func (s *Semaphore) For(work string) *Semaphore {
	s.work = work
	return s
}

// WorkOf is what the lease with this id is for, or the whole id where its request had no [Semaphore.For].
func WorkOf(leaseID string) string {
	work, _, _ := strings.Cut(leaseID, workMark)
	return work
}

// newRequest is a request with an id of its own.
func (s *Semaphore) newRequest() Request {
	r := s.request.WithDefaults()
	if s.work != "" {
		const random = 12 // letters of five bits: a work asks a few times
		r.ID = s.work + workMark + r.ID[:random]
	}
	return r
}

// Option changes how a [Mutex], a [Semaphore] or a set of [MultiLock] acquires.
type Option func(*terms)

// terms are the fields of a [Request] that options can change: all that the queue carries from a waiter to
// its grant.
type terms struct {
	lease, delay time.Duration
	anyLimit     bool
}

// WithLease sets how long a lease lasts without renewal. The default is 30s.
func WithLease(d time.Duration) Option { return func(t *terms) { t.lease = d } }

// WithDelay keeps a row shut for a while, 1h at most, after its lease ended without a release. See package locking.
func WithDelay(d time.Duration) Option { return func(t *terms) { t.delay = d } }

// WithAnyLimit accepts a lock that is in use with another number of slots. See package locking.
func WithAnyLimit() Option { return func(t *terms) { t.anyLimit = true } }

// termsOf are those that options give.
func termsOf(options []Option) (t terms) {
	for _, o := range options {
		o(&t)
	}
	return t
}

// Mutex is the mutex of this name. It makes no call.
func (c *Client) Mutex(name string, options ...Option) *Mutex {
	return &Mutex{*c.Semaphore(name, 1, options...)}
}

const noSlots = -1

// Semaphore is the semaphore of this name, with 1 to 1000 slots. It makes no call.
func (c *Client) Semaphore(name string, slots int, options ...Option) *Semaphore {
	if slots == 0 { // which a Request may leave out
		slots = noSlots
	}
	t := termsOf(options)
	return &Semaphore{client: c, request: Request{Lock: name, Slots: slots, Lease: t.lease, Delay: t.delay, AnyLimit: t.anyLimit}}
}

// TryLock locks the mutex if it is free; ok reports whether it did. See package locking.
func (m *Mutex) TryLock(ctx context.Context) (lease *Lease, ok bool, err error) {
	return m.sem.TryAcquire(ctx)
}

// TryAcquire takes a row if one is free and no waiter is in line for it; ok reports whether it did. See package locking.
func (s *Semaphore) TryAcquire(ctx context.Context) (lease *Lease, ok bool, err error) {
	a := s.insist(ctx, s.newRequest())
	if a.Verdict == Unknown {
		return nil, false, a.Err
	}
	return a.Lease, a.Verdict == Granted, nil
}

// insist asks until the outcome is known, or can't be.
func (s *Semaphore) insist(ctx context.Context, r Request) Answer {
	if s.client.work.Begin() { // so that Close waits for the grants being taken back
		defer s.client.work.Done()
	}
	began := s.client.cfg.Clock()
	a := s.client.Acquire(ctx, r)
	if !errors.Is(a.Err, ErrUnknown) {
		return a // without a timer
	}
	r.FirstTry = false
	ctx, cancel := context.WithTimeout(ctx, began+s.client.tryFor(r.Lease)-s.client.cfg.Clock())
	defer cancel()
	for retry := lease.NewRetry(s.client.cfg.Timeout); a.Unsure(); {
		s.client.work.Sleep(ctx, retry.Next())
		if ctx.Err() != nil {
			a.Err = fmt.Errorf("%w (%w)", a.Err, context.Cause(ctx))
			break
		}
		if again := s.client.Acquire(ctx, r); !again.Unsure() || ctx.Err() == nil { // else the reply says no more
			a = again
		}
	}
	if a.Verdict != Granted { // also where the last try was refused, or the client has closed: an earlier one may be granted yet
		s.client.quit(r)
	}
	return a
}

// tryFor is for how long a call that does not wait for holders asks a server that does not
// answer.
func (c *Client) tryFor(lease time.Duration) time.Duration {
	return min(lease, time.Duration(c.store.RoundTrips())*c.cfg.Timeout)
}
