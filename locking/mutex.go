package locking

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// A Mutex is a lock with one row.
type Mutex engine.Mutex

// A Semaphore is a lock with several rows, so that as many leases may be held at once. The number is kept with the lock until [Config.Idle] after its
// last use. Until then a request with another number is refused with [ErrLimit].
type Semaphore engine.Semaphore

// An Option changes how a [Mutex], a [Semaphore] or a [MultiLock] acquires.
type Option = engine.Option

// WithLease sets the length of a lease without renewal. The default is 30s.
func WithLease(d time.Duration) Option { return engine.WithLease(d) }

// WithDelay keeps a row shut for a while, 1h at most, after its lease ended without a release, for writes of a holder that stands still. The default
// is no delay.
func WithDelay(d time.Duration) Option { return engine.WithDelay(d) }

// WithAnyLimit accepts a lock that is in use with another number of slots, and leaves that number as it is. A [MultiLock] does not take it.
func WithAnyLimit() Option { return engine.WithAnyLimit() }

// Mutex returns the mutex with this name. It makes no call.
func (c *Client) Mutex(name string, options ...Option) *Mutex {
	return (*Mutex)(c.Engine().Mutex(name, options...))
}

// Semaphore returns the semaphore with this name, with 1 to 1000 slots. It makes no call.
func (c *Client) Semaphore(name string, slots int, options ...Option) *Semaphore {
	return (*Semaphore)(c.Engine().Semaphore(name, slots, options...))
}

func (m *Mutex) toEngine() *engine.Mutex { return (*engine.Mutex)(m) }

func (s *Semaphore) toEngine() *engine.Semaphore { return (*engine.Semaphore)(s) }

// Lock waits until the caller holds the mutex, first come, first served, or ctx ends: see [Semaphore.Acquire].
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	l, err := m.toEngine().Lock(ctx)
	return (*Lease)(l), err
}

// TryLock locks the mutex if it is free. ok reports whether it did. An error means that the outcome is unknown: see [Semaphore.TryAcquire].
func (m *Mutex) TryLock(ctx context.Context) (lease *Lease, ok bool, err error) {
	l, ok, err := m.toEngine().TryLock(ctx)
	return (*Lease)(l), ok, err
}

// LockReentrant is [Mutex.Lock] for callers that may hold the mutex already (a reentrant lock). If ctx carries a lease of this mutex and this client
// that is still held, LockReentrant returns that lease, with its token and one more hold. Otherwise it waits for a new one. Each LockReentrant needs
// one [Lease.Release], in any order. The last one ends the lease, and one too many returns an error that is [ErrReleased].
//
// The returned context carries the lease. It is derived from ctx, and ends a moment after the lease does, with the same cause: pass it on, and work
// under it. All goroutines that have it hold the lock, and none excludes another. A caller that starts a goroutine which may outlive its own hold
// enters once for that goroutine.
//
// A lost lease is never returned again. Its context has ended, so a call with that context returns [ErrLost]. A call with a context that goes on
// regardless ([context.WithoutCancel]) gets a new lease with a greater token, and the holds of the lost lease do not count for it. If LockReentrant
// fails, it returns ctx itself.
func (m *Mutex) LockReentrant(ctx context.Context) (context.Context, *Lease, error) {
	inner, l, err := m.toEngine().LockReentrant(ctx)
	return inner, (*Lease)(l), err
}

// TryLockReentrant is [Mutex.LockReentrant] without waiting, like [Mutex.TryLock]. ok reports whether this caller holds the mutex now.
func (m *Mutex) TryLockReentrant(ctx context.Context) (inner context.Context, lease *Lease, ok bool, err error) {
	inner, l, ok, err := m.toEngine().TryLockReentrant(ctx)
	return inner, (*Lease)(l), ok, err
}

// Acquire waits for a row in the lock's queue, which is served in order: a release hands the row to the first in line and notifies only that waiter.
// A waiter whose process has died is dropped when it has not asked for some seconds. While the server is away Acquire goes on trying, unless the
// server refuses ([ErrRefused]).
//
// The error wraps the cause of ctx if that has ended, and also [ErrUnknown] if the server did not answer. The waiter is out of the queue then, or
// will be as soon as the server answers, and never holds a row. A lease that was waited for may have only one second until [Lease.Confirmed].
//
// On a quorum there is no queue. Acquire asks again with random pauses, so the caller that has waited longest need not be next.
func (s *Semaphore) Acquire(ctx context.Context) (*Lease, error) {
	l, err := s.toEngine().Acquire(ctx)
	return (*Lease)(l), err
}

// AcquireConfirmed is [Semaphore.Acquire] for work that takes time to stop: the lease has its whole length. A lease that was lost before it was
// confirmed never reaches the caller, and AcquireConfirmed waits for another. ctx may have ended when it returns the lease.
func (s *Semaphore) AcquireConfirmed(ctx context.Context) (*Lease, error) {
	l, err := s.toEngine().AcquireConfirmed(ctx)
	return (*Lease)(l), err
}

// TryAcquire takes a row if one is free and no waiter is in line for it. ok reports whether it did. While the outcome is unknown it asks again with
// the same lease id, until ctx ends, [Config.Timeout] has passed (on a quorum twice that), or the server refuses ([ErrRefused]). Then it returns an
// error that is [ErrUnknown], and a grant that the server may have made is given back in the background. To wait for a server that is away, use
// [Semaphore.Acquire].
func (s *Semaphore) TryAcquire(ctx context.Context) (lease *Lease, ok bool, err error) {
	l, ok, err := s.toEngine().TryAcquire(ctx)
	return (*Lease)(l), ok, err
}
