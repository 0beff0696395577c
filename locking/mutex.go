package locking

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
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

// WithAnyLimit accepts a lock that is in use with a different number of slots. A grant changes the number. It is not allowed for a [MultiLock].
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

// A MultiLock is a set of mutexes that are locked all or none, in one atomic step on the server. It holds no lock while it waits, so it cannot
// deadlock with other sets or with single locks.
type MultiLock engine.MultiLock

// MultiLock returns the set of the mutexes with these names, in any order. It does not call Redis. Several names must have the same hash tag, as in
// "{orders}:1" and "{orders}:2", so that all keys are on one node of a Redis Cluster: see [Tagged].
func (c *Client) MultiLock(names ...string) *MultiLock {
	return (*MultiLock)(c.Engine().MultiLock(names...))
}

func (s *MultiLock) toEngine() *engine.MultiLock { return (*engine.MultiLock)(s) }

// With returns the same set with options for all its locks. Only [WithLease] and [WithDelay] are allowed.
func (s *MultiLock) With(options ...Option) *MultiLock {
	return (*MultiLock)(s.toEngine().With(options...))
}

// TryLock locks all mutexes if each of them is free. ok reports whether they were locked. If the server does not answer, TryLock retries with the
// same lease ids, as [Semaphore.TryAcquire] does.
func (s *MultiLock) TryLock(ctx context.Context) (leases *LeaseSet, ok bool, err error) {
	all, ok, err := s.toEngine().TryLock(ctx)
	return (*LeaseSet)(all), ok, err
}

// Lock waits until it has locked all mutexes, or ctx ends. Sets have no queue: Lock polls after growing pauses, and when the lease that blocks it
// expires. Lock does not overtake callers that wait for one of the mutexes, so it may wait long if the mutexes are in constant use.
func (s *MultiLock) Lock(ctx context.Context) (*LeaseSet, error) {
	all, err := s.toEngine().Lock(ctx)
	return (*LeaseSet)(all), err
}

// A LeaseSet holds the leases of several locks: see [Client.MultiLock] and [LeaseSetOf]. Each lease is renewed on its own. A LeaseSet is safe for
// concurrent use.
type LeaseSet engine.LeaseSet

// LeaseSetOf combines leases that were granted one by one, for work that needs all of them. Releasing a single lease is allowed, and ends the context
// of the set. A lease may be in at most one set.
func LeaseSetOf(first *Lease, others ...*Lease) *LeaseSet {
	rest := make([]*engine.Lease, len(others))
	for i, l := range others {
		rest[i] = l.toEngine()
	}
	return (*LeaseSet)(engine.LeaseSetOf(first.toEngine(), rest...))
}

func (s *LeaseSet) toEngine() *engine.LeaseSet { return (*engine.LeaseSet)(s) }

// Lease returns the lease of the lock with this name, or nil if the set has none.
func (s *LeaseSet) Lease(name string) *Lease { return (*Lease)(s.toEngine().Lease(name)) }

// Context returns a context that ends a moment after any of the leases has ended. context.Cause names this lease and the reason. The other leases are
// held until [LeaseSet.Release].
func (s *LeaseSet) Context() context.Context { return s.toEngine().Context() }

// Endangered returns a channel that is closed when any of the leases is endangered: see [Lease.Endangered].
func (s *LeaseSet) Endangered() <-chan struct{} { return s.toEngine().Endangered() }

// Tokens returns the fencing tokens by the names of their locks. Compare each only with tokens of its own lock.
func (s *LeaseSet) Tokens() map[string]Token { return s.toEngine().Tokens() }

// Remaining returns the time for which the holder may rely on all leases without a renewal. It is negative after the end of any lease.
func (s *LeaseSet) Remaining() time.Duration { return s.toEngine().Remaining() }

// Length returns the length of the shortest lease without renewal.
func (s *LeaseSet) Length() time.Duration { return s.toEngine().Length() }

// Deadline returns the instant until which the holder may rely on all leases unless they are renewed: see [Lease.Deadline].
func (s *LeaseSet) Deadline() time.Duration { return s.toEngine().Deadline() }

// OnExtend calls f whenever the deadline of the whole set changes, until stop is called: see [Lease.OnExtend].
func (s *LeaseSet) OnExtend(f func(deadline time.Duration)) (stop func()) {
	return s.toEngine().OnExtend(f)
}

// Release ends the context and then frees the slots of all leases at once. Call it after the work has ended. Like [Lease.Release], it works even if
// ctx has ended. The error names each lease that was lost before the Release ([ErrLost]), and each lease for which the server did not answer
// ([ErrUnknown]). A second Release is not an error.
func (s *LeaseSet) Release(ctx context.Context) error { return s.toEngine().Release(ctx) }

// Name returns the name of a fine-grained lock, such as a lock for each order: Name("orders", "17") is "orders:17". Different arguments give
// different names, because colons, braces, percent signs and control characters are percent-encoded, such as %3A for a colon. The kind must not be
// empty.
//
// On a Redis Cluster, the whole name determines the node, so the locks of a kind spread over all nodes. For the locks of a [Client.MultiLock], which
// must be on one node, use [Tagged].
//
// Two callers that take two locks one by one, in different orders, can deadlock. To prevent that, all callers must take the smaller name first, in
// the order of [slices.Sort]. [Client.MultiLock] cannot deadlock, because it holds no lock while it waits.
func Name(kind string, ids ...string) string {
	return strings.Join(escapeParts(append([]string{kind}, ids...)), ":")
}

// Tagged is [Name] with the kind as the hash tag: Tagged("orders", "17") is "{orders}:17". All locks of the kind are then on one node of a Redis
// Cluster, as [Client.MultiLock] requires.
func Tagged(kind string, ids ...string) string {
	parts := escapeParts(append([]string{kind}, ids...))
	for i, id := range parts[1:] {
		if slices.Contains(lease.KeyParts, id) { // "{orders}:queue" is a key of the lock "{orders}"
			parts[i+1] = percentEncode(id[0]) + id[1:]
		}
	}
	parts[0] = "{" + parts[0] + "}"
	return strings.Join(parts, ":")
}

// escapeParts percent-encodes control characters, the separator, braces and the percent sign, which have a meaning in names.
func escapeParts(parts []string) []string {
	out := make([]string, len(parts))
	for i, part := range parts {
		var b strings.Builder
		for _, c := range []byte(part) {
			if c < ' ' || c == 0x7f || strings.IndexByte("%:{}", c) >= 0 {
				b.WriteString(percentEncode(c))
			} else {
				b.WriteByte(c)
			}
		}
		out[i] = b.String()
	}
	return out
}

func percentEncode(c byte) string { return fmt.Sprintf("%%%02X", c) }
