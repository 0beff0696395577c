package locking

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// A Mutex is a lock with one slot.
type Mutex engine.Mutex

// A Semaphore is a lock with several slots. Each slot may be held by one lease. Redis keeps the number of slots until [Config.Idle] after the last
// use of the lock. Until then, a request with a different number is refused with [ErrLimit].
type Semaphore engine.Semaphore

// An Option changes how a [Mutex], a [Semaphore] or a [MultiLock] acquires.
type Option = engine.Option

// WithLease sets the length of a lease without renewal. The default is 30s.
func WithLease(d time.Duration) Option { return engine.WithLease(d) }

// WithDelay keeps a slot closed for d, at most 1h, after its lease ended without a release, so that late writes of a paused holder arrive before the
// next holder begins. The default is no delay.
func WithDelay(d time.Duration) Option { return engine.WithDelay(d) }

// WithAnyLimit accepts a lock that is in use with a different number of slots, and does not change the number. It is not allowed for a [MultiLock].
func WithAnyLimit() Option { return engine.WithAnyLimit() }

// Mutex returns the mutex with this name. It does not call Redis.
func (c *Client) Mutex(name string, options ...Option) *Mutex {
	return (*Mutex)(c.Engine().Mutex(name, options...))
}

// Semaphore returns the semaphore with this name, with 1 to 1000 slots. It does not call Redis.
func (c *Client) Semaphore(name string, slots int, options ...Option) *Semaphore {
	return (*Semaphore)(c.Engine().Semaphore(name, slots, options...))
}

func (m *Mutex) toEngine() *engine.Mutex { return (*engine.Mutex)(m) }

func (s *Semaphore) toEngine() *engine.Semaphore { return (*engine.Semaphore)(s) }

// Lock waits until the caller holds the mutex or ctx ends. Callers are served first come, first served: see [Semaphore.Acquire].
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	l, err := m.toEngine().Lock(ctx)
	return (*Lease)(l), err
}

// TryLock locks the mutex if it is free. ok reports whether the mutex was locked. After an error the outcome is unknown: see [Semaphore.TryAcquire].
func (m *Mutex) TryLock(ctx context.Context) (lease *Lease, ok bool, err error) {
	l, ok, err := m.toEngine().TryLock(ctx)
	return (*Lease)(l), ok, err
}

// LockReentrant is [Mutex.Lock] for callers that may hold the mutex already (a reentrant lock). If ctx carries a lease of this mutex and this client
// that is still held, LockReentrant returns that lease, with its token and one more hold. Otherwise LockReentrant waits for a new lease. Each
// successful LockReentrant needs one [Lease.Release], in any order. The last Release ends the lease, and any further Release returns [ErrReleased].
//
// The returned context carries the lease. It is derived from ctx, and ends a moment after the lease's own context, with the same cause. Use it for
// the work, and pass it to called functions. All goroutines that have this context hold the lock, and they do not exclude each other. If a goroutine
// may outlive the hold of the caller that starts it, the caller calls LockReentrant once more for that goroutine.
//
// LockReentrant never returns a lost lease. The context of a lost lease has ended, so a call with that context returns [ErrLost]. A call with a
// context that did not end ([context.WithoutCancel]) gets a new lease with a greater token and one hold. If LockReentrant fails, it returns ctx
// itself.
func (m *Mutex) LockReentrant(ctx context.Context) (context.Context, *Lease, error) {
	inner, l, err := m.toEngine().LockReentrant(ctx)
	return inner, (*Lease)(l), err
}

// TryLockReentrant is [Mutex.LockReentrant] without waiting, like [Mutex.TryLock]. ok reports whether this caller holds the mutex now.
func (m *Mutex) TryLockReentrant(ctx context.Context) (inner context.Context, lease *Lease, ok bool, err error) {
	inner, l, ok, err := m.toEngine().TryLockReentrant(ctx)
	return inner, (*Lease)(l), ok, err
}

// Acquire waits for a slot in the lock's queue. A release hands its slot to the first waiter in the queue, and notifies only that waiter. A waiter
// whose process died is dropped from the queue after some seconds. While the server does not answer, Acquire retries. It returns at once if the
// server refuses the request ([ErrRefused]).
//
// If ctx has ended, the error wraps the cause of ctx, and also [ErrUnknown] if the server did not answer. The client removes the caller from the
// queue, in the background if the server does not answer, and the caller never holds a slot. After a wait, the lease may have a length of only one
// second until [Lease.Confirmed] is closed.
//
// On a quorum there is no queue. Acquire polls with random pauses, so the caller that has waited longest is not always next.
func (s *Semaphore) Acquire(ctx context.Context) (*Lease, error) {
	l, err := s.toEngine().Acquire(ctx)
	return (*Lease)(l), err
}

// AcquireConfirmed is [Semaphore.Acquire] for work that takes time to stop: it returns the lease only when the lease has its whole length. If a lease
// is lost before that, AcquireConfirmed waits for another lease. ctx may have ended when AcquireConfirmed returns a lease.
func (s *Semaphore) AcquireConfirmed(ctx context.Context) (*Lease, error) {
	l, err := s.toEngine().AcquireConfirmed(ctx)
	return (*Lease)(l), err
}

// TryAcquire takes a slot if one is free and no waiter is in line for it. ok reports whether it took one. If the server does not answer, TryAcquire
// retries with the same lease id until ctx ends, [Config.Timeout] has passed (twice that on a quorum), or the server refuses the request
// ([ErrRefused]). Then it returns [ErrUnknown], and the client releases in the background what the server may have granted. To wait for a server that
// does not answer, use [Semaphore.Acquire].
func (s *Semaphore) TryAcquire(ctx context.Context) (lease *Lease, ok bool, err error) {
	l, ok, err := s.toEngine().TryAcquire(ctx)
	return (*Lease)(l), ok, err
}
