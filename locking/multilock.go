package locking

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// MultiLock is a set of mutexes that are locked together, all of them or none, in one atomic step on the server. A
// waiter for a set holds nothing of it meanwhile, so that no two sets, and no set and a single lock, can wait
// for each other for ever.
type MultiLock engine.MultiLock

// MultiLock is the set of the mutexes of these names, in any order. It makes no call. If there are more than one, they must have one hash tag, as in
// "{orders}:1" and "{orders}:2", so that they are on one node of a Cluster: see [Tagged].
func (c *Client) MultiLock(names ...string) *MultiLock {
	return (*MultiLock)(c.Engine().MultiLock(names...))
}

func (s *MultiLock) engine() *engine.MultiLock { return (*engine.MultiLock)(s) }

// With is the same set with options, of which [WithLease] and [WithDelay] have a meaning here. They are for all its locks.
func (s *MultiLock) With(options ...Option) *MultiLock {
	return (*MultiLock)(s.engine().With(options...))
}

// TryLock locks all mutexes if none of them is held; ok reports whether it did. While the outcome is unknown it
// asks again with the same lease ids, as [Semaphore.TryAcquire] does.
func (s *MultiLock) TryLock(ctx context.Context) (leases *LeaseSet, ok bool, err error) {
	all, ok, err := s.engine().TryLock(ctx)
	return (*LeaseSet)(all), ok, err
}

// Lock waits until it has locked all mutexes, or ctx ends. There is no queue for sets: it asks again and again,
// the sooner the less it has waited, and when the lease that is in its way runs out. It does not pass waiters
// for a single one of the mutexes, so it may wait for long where these are in constant use.
func (s *MultiLock) Lock(ctx context.Context) (*LeaseSet, error) {
	all, err := s.engine().Lock(ctx)
	return (*LeaseSet)(all), err
}

// LeaseSet is the leases of a set of locks: see [Client.MultiLock] and [LeaseSetOf]. Each is renewed by itself. It is safe for concurrent use.
type LeaseSet engine.LeaseSet

// LeaseSetOf makes a set of leases that were granted one by one, for work that needs all of them. Each may still be released by itself, which ends
// the set's context. A lease is in one set at most.
func LeaseSetOf(first *Lease, others ...*Lease) *LeaseSet {
	rest := make([]*engine.Lease, len(others))
	for i, l := range others {
		rest[i] = l.engine()
	}
	return (*LeaseSet)(engine.LeaseSetOf(first.engine(), rest...))
}

func (s *LeaseSet) engine() *engine.LeaseSet { return (*engine.LeaseSet)(s) }

// Lease is that of a lock, nil if the set has none of this name.
func (s *LeaseSet) Lease(name string) *Lease { return (*Lease)(s.engine().Lease(name)) }

// Context ends a moment after the first of the leases has ended, or when they are released; context.Cause names
// that one and the reason. The others are held until [LeaseSet.Release].
func (s *LeaseSet) Context() context.Context { return s.engine().Context() }

// Endangered is closed when that of the first lease is: see [Lease.Endangered].
func (s *LeaseSet) Endangered() <-chan struct{} { return s.engine().Endangered() }

// Tokens are the fencing tokens by the names of their locks. Each is to be compared with others of its own lock only.
func (s *LeaseSet) Tokens() map[string]Token { return s.engine().Tokens() }

// Remaining is how long the holder may rely on all of the leases if no renewal comes through; negative once one has ended.
func (s *LeaseSet) Remaining() time.Duration { return s.engine().Remaining() }

// Length is how long the shortest of the leases lasts without renewal.
func (s *LeaseSet) Length() time.Duration { return s.engine().Length() }

// Deadline is until when the holder may rely on all of the leases if no renewal comes through: see [Lease.Deadline].
func (s *LeaseSet) Deadline() time.Duration { return s.engine().Deadline() }

// OnExtend has f called with the new deadline of all of them whenever it has moved, until stop is called: see [Lease.OnExtend].
func (s *LeaseSet) OnExtend(f func(deadline time.Duration)) (stop func()) {
	return s.engine().OnExtend(f)
}

// Release ends all leases: first the context, then, when that work must be over, the rows, together. As [Lease.Release] it is done even if ctx
// has ended. The error names each lease that was lost before, with [ErrLost], also where the server still had its row, and each of which the server did not
// answer, with [ErrUnknown]. To release them again is no error.
func (s *LeaseSet) Release(ctx context.Context) error { return s.engine().Release(ctx) }
