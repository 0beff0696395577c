package locking

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// A MultiLock is a set of mutexes that are locked together, all or none, in one atomic step on the server. A waiter for a set holds nothing
// meanwhile, so that no two sets, and no set and a single lock, can wait for each other for ever.
type MultiLock engine.MultiLock

// MultiLock returns the set of the mutexes with these names, in any order. It makes no call. If there are several, they must have the same hash tag,
// as in "{orders}:1" and "{orders}:2", so that they are on one node of a Cluster: see [Tagged].
func (c *Client) MultiLock(names ...string) *MultiLock {
	return (*MultiLock)(c.Engine().MultiLock(names...))
}

func (s *MultiLock) toEngine() *engine.MultiLock { return (*engine.MultiLock)(s) }

// With returns the same set with options for all its locks. Only [WithLease] and [WithDelay] are allowed.
func (s *MultiLock) With(options ...Option) *MultiLock {
	return (*MultiLock)(s.toEngine().With(options...))
}

// TryLock locks all mutexes if each of them is free. ok reports whether it did. While the outcome is unknown it asks again with the same lease ids,
// as [Semaphore.TryAcquire] does.
func (s *MultiLock) TryLock(ctx context.Context) (leases *LeaseSet, ok bool, err error) {
	all, ok, err := s.toEngine().TryLock(ctx)
	return (*LeaseSet)(all), ok, err
}

// Lock waits until it has locked all mutexes, or ctx ends. There is no queue for sets. It asks again after pauses that grow with the wait, and when
// the lease in its way runs out. It does not pass waiters for a single mutex, so it may wait for long if the mutexes are in constant use.
func (s *MultiLock) Lock(ctx context.Context) (*LeaseSet, error) {
	all, err := s.toEngine().Lock(ctx)
	return (*LeaseSet)(all), err
}

// A LeaseSet has the leases of a set of locks: see [Client.MultiLock] and [LeaseSetOf]. Each is renewed by itself. It is safe for concurrent use.
type LeaseSet engine.LeaseSet

// LeaseSetOf returns a set of leases that were granted one by one, for work that needs all of them. Each may still be released by itself, which ends
// the set's context. A lease may be in one set at most.
func LeaseSetOf(first *Lease, others ...*Lease) *LeaseSet {
	rest := make([]*engine.Lease, len(others))
	for i, l := range others {
		rest[i] = l.toEngine()
	}
	return (*LeaseSet)(engine.LeaseSetOf(first.toEngine(), rest...))
}

func (s *LeaseSet) toEngine() *engine.LeaseSet { return (*engine.LeaseSet)(s) }

// Lease returns the lease of a lock, or nil if the set has none with this name.
func (s *LeaseSet) Lease(name string) *Lease { return (*Lease)(s.toEngine().Lease(name)) }

// Context returns a context that ends a moment after the first of the leases has ended, or when they are released. context.Cause names that lease and
// the reason. The other leases are held until [LeaseSet.Release].
func (s *LeaseSet) Context() context.Context { return s.toEngine().Context() }

// Endangered returns a channel that is closed when the first of the leases is endangered: see [Lease.Endangered].
func (s *LeaseSet) Endangered() <-chan struct{} { return s.toEngine().Endangered() }

// Tokens returns the fencing tokens by the names of their locks. Compare each only with tokens of its own lock.
func (s *LeaseSet) Tokens() map[string]Token { return s.toEngine().Tokens() }

// Remaining returns how long the holder may rely on all leases unless they are renewed; negative once one has ended.
func (s *LeaseSet) Remaining() time.Duration { return s.toEngine().Remaining() }

// Length returns the length of the shortest lease without renewal.
func (s *LeaseSet) Length() time.Duration { return s.toEngine().Length() }

// Deadline returns the instant until which the holder may rely on all leases unless they are renewed: see [Lease.Deadline].
func (s *LeaseSet) Deadline() time.Duration { return s.toEngine().Deadline() }

// OnExtend calls f with the new deadline of the whole set whenever it has moved, until stop is called: see [Lease.OnExtend].
func (s *LeaseSet) OnExtend(f func(deadline time.Duration)) (stop func()) {
	return s.toEngine().OnExtend(f)
}

// Release ends all leases: first the context, which must be the end of the work, then all rows at once. Like [Lease.Release] it does so even if ctx
// has ended. The error names each lease that was lost before, with [ErrLost], even if the server still had its row, and each lease without an answer
// from the server, with [ErrUnknown]. A second Release is not an error.
func (s *LeaseSet) Release(ctx context.Context) error { return s.toEngine().Release(ctx) }
