package locking

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

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
