package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A Mutex is a lock with one slot.
type Mutex struct{ sem Semaphore }

// A Semaphore is a lock with several slots. Each slot can be held by one lease. See package locking.
type Semaphore struct {
	client  *Client
	request Request
	work    string
}

// workMark separates the id of the work from the rest of a lease id.
const workMark = "."

// For makes the lease ids begin with the id of the work, which must not contain dots. [WorkOf] returns this id for a row of the lock.
func (s *Semaphore) For(work string) *Semaphore {
	s.work = work
	return s
}

// WorkOf returns the id of the work in a lease id, or the whole lease id if it was made without [Semaphore.For].
func WorkOf(leaseID string) string {
	work, _, _ := strings.Cut(leaseID, workMark)
	return work
}

// newRequest returns a request with a new lease id.
func (s *Semaphore) newRequest() Request {
	r := s.request.WithDefaults()
	if s.work != "" {
		const random = 12 // letters with 5 bits each: enough for the few requests of one work
		r.ID = s.work + workMark + r.ID[:random]
	}
	return r
}

// An Option changes how a [Mutex], a [Semaphore] or a [MultiLock] acquires.
type Option func(*terms)

// A terms has the fields of a [Request] that options can change. The lock's queue stores exactly these fields for a waiter.
type terms struct {
	lease, delay time.Duration
	anyLimit     bool
}

// WithLease sets the length of a lease without renewal. The default is 30s.
func WithLease(d time.Duration) Option { return func(t *terms) { t.lease = d } }

// WithDelay sets the time, at most 1h, for which a slot is not granted again after its lease ended without a release. See package locking.
func WithDelay(d time.Duration) Option { return func(t *terms) { t.delay = d } }

// WithAnyLimit accepts a lock that is in use with another number of slots. See package locking.
func WithAnyLimit() Option { return func(t *terms) { t.anyLimit = true } }

func termsOf(options []Option) (t terms) {
	for _, o := range options {
		o(&t)
	}
	return t
}

// Mutex returns the mutex with this name. It sends nothing to Redis.
func (c *Client) Mutex(name string, options ...Option) *Mutex {
	return &Mutex{*c.Semaphore(name, 1, options...)}
}

const noSlots = -1

// Semaphore returns the semaphore with this name, with 1 to 1000 slots. It sends nothing to Redis.
func (c *Client) Semaphore(name string, slots int, options ...Option) *Semaphore {
	if slots == 0 { // in a Request, 0 stands for the default
		slots = noSlots
	}
	t := termsOf(options)
	return &Semaphore{client: c, request: Request{Lock: name, Slots: slots, Lease: t.lease, Delay: t.delay, AnyLimit: t.anyLimit}}
}

// TryLock locks the mutex if it is free. ok reports whether the mutex was locked. See package locking.
func (m *Mutex) TryLock(ctx context.Context) (lease *Lease, ok bool, err error) {
	return m.sem.TryAcquire(ctx)
}

// TryAcquire takes a slot if one is free and no waiter is in the queue for it. ok reports whether it took a slot. See package locking.
func (s *Semaphore) TryAcquire(ctx context.Context) (lease *Lease, ok bool, err error) {
	a := s.tryUntilKnown(ctx, s.newRequest())
	if a.Verdict == Unknown {
		return nil, false, a.Err
	}
	return a.Lease, a.Verdict == Granted, nil
}

// tryUntilKnown repeats a request until its outcome is known, or the time limit of tryFor is reached.
func (s *Semaphore) tryUntilKnown(ctx context.Context, r Request) Answer {
	if s.client.work.Begin() { // Close waits for grants to be taken back
		defer s.client.work.Done()
	}
	began := s.client.cfg.Clock()
	a := s.client.Acquire(ctx, r)
	if !errors.Is(a.Err, ErrUnknown) {
		return a // the usual case needs no timer
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
		if again := s.client.Acquire(ctx, r); !again.Unsure() || ctx.Err() == nil { // after the end of ctx, an error only says that ctx has ended
			a = again
		}
	}
	if a.Verdict != Granted { // an earlier try may still be granted, even if the last one was refused, or the client has closed
		s.client.withdrawRequest(r)
	}
	return a
}

// tryFor returns the time limit of a call that does not wait for holders, if Redis does not answer.
func (c *Client) tryFor(lease time.Duration) time.Duration {
	return min(lease, time.Duration(c.store.RoundTrips())*c.cfg.Timeout)
}

// Lock waits until the caller holds the mutex, first come, first served, or ctx ends: see [Semaphore.Acquire].
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) { return m.sem.Acquire(ctx) }

// Acquire waits for a slot in the lock's queue, which is served in order: a release hands the slot to the first in line and notifies only that
// waiter. See package locking.
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

// LockReentrant is [Mutex.Lock] for callers that may hold the mutex already (a reentrant lock). See package locking.
func (m *Mutex) LockReentrant(ctx context.Context) (context.Context, *Lease, error) {
	if inner, lease, err := m.reenterHeld(ctx); lease != nil || err != nil {
		return inner, lease, err
	}
	lease, err := m.Lock(ctx)
	if err != nil {
		return ctx, nil, err
	}
	lease.countHolds()
	return lease.carryIn(ctx), lease, nil
}

// TryLockReentrant is [Mutex.LockReentrant] without waiting, like [Mutex.TryLock]. ok reports whether this caller holds the mutex now.
func (m *Mutex) TryLockReentrant(ctx context.Context) (inner context.Context, lease *Lease, ok bool, err error) {
	if inner, lease, err = m.reenterHeld(ctx); lease != nil || err != nil {
		return inner, lease, lease != nil, err
	}
	lease, ok, err = m.TryLock(ctx)
	if !ok {
		return ctx, nil, false, err
	}
	lease.countHolds()
	return lease.carryIn(ctx), lease, true, nil
}

// A carriedKey is the context key for the lease of a lock. It has the Redis key of the lock instead of the name, because "x" and "{x}" are the same
// lock.
type carriedKey struct {
	client *Client
	key    string
}

// A carried is a lease in a context, and the Done channel of that context.
type carried struct {
	lease *Lease
	done  <-chan struct{}
}

// reenterHeld takes one more hold of the lease that ctx carries. It returns a nil lease if ctx carries no held lease of this mutex.
func (m *Mutex) reenterHeld(ctx context.Context) (context.Context, *Lease, error) {
	if ctx.Err() != nil {
		return ctx, nil, fmt.Errorf("lock %q: %w", m.sem.request.Lock, context.Cause(ctx))
	}
	held, ok := ctx.Value(carriedKey{m.sem.client, m.sem.client.lockKey(m.sem.request.Lock)}).(carried)
	switch {
	case !ok || !held.lease.addHold():
		return ctx, nil, nil
	case ctx.Done() == held.done:
		return ctx, held.lease, nil
	}
	return held.lease.carryIn(ctx), held.lease, nil
}

// carryIn derives a context that carries the lease and ends with it.
func (l *Lease) carryIn(ctx context.Context) context.Context {
	inner, end := context.WithCancelCause(ctx)
	forget := context.AfterFunc(l.ctx, func() { end(context.Cause(l.ctx)) })
	context.AfterFunc(inner, func() { forget() }) // remove the callback from the lease, which may outlive many contexts
	return context.WithValue(inner, carriedKey{l.client, l.client.lockKey(l.lockName())}, carried{l, inner.Done()})
}

// countHolds makes a new lease count its holds.
func (l *Lease) countHolds() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = holds{counted: true, n: 1}
}

// addHold takes one more hold, unless the lease has ended or is being released.
func (l *Lease) addHold() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holds.n == 0 || l.ctx.Err() != nil || l.client.cfg.Clock() >= l.deadline {
		return false
	}
	l.holds.n++
	return true
}
