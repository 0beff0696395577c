package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A LeaseSet is a set of leases, one for each of several locks. See package locking.
type LeaseSet struct {
	all        []*Lease // sorted by name, if a MultiLock granted them
	ctx        context.Context
	end        context.CancelCauseFunc
	endangered signal // closed when the first lease is endangered
	released   atomic.Bool
}

func newLeaseSet(all []*Lease) *LeaseSet {
	s := &LeaseSet{all: all}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	for _, l := range all {
		context.AfterFunc(l.ctx, func() { s.end(fmt.Errorf("lock %q: %w", l.lockName(), context.Cause(l.ctx))) })
		l.joinSet(&s.endangered)
	}
	return s
}

// LeaseSetOf returns a set of leases that were granted one by one, for work that needs all of them. See package locking.
func LeaseSetOf(first *Lease, others ...*Lease) *LeaseSet {
	return newLeaseSet(append([]*Lease{first}, others...))
}

// Context returns a context that ends a moment after the first of the leases has ended, or when the set is released. context.Cause returns the name
// of the lost lock and the reason. See package locking.
func (s *LeaseSet) Context() context.Context { return s.ctx }

// Endangered returns a channel that is closed when the first of the leases is endangered: see [Lease.Endangered].
func (s *LeaseSet) Endangered() <-chan struct{} { return s.endangered.doneChannel() }

// joinSet adds a lease to a set.
func (l *Lease) joinSet(set *signal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ofSet = set; l.warned {
		set.setOnce()
	}
}

// Lease returns the lease of a lock, or nil if the set has none with this name.
func (s *LeaseSet) Lease(name string) *Lease {
	i := slices.IndexFunc(s.all, func(l *Lease) bool { return l.lockName() == name })
	if i < 0 {
		return nil
	}
	return s.all[i]
}

// Tokens returns the fencing tokens by the names of their locks. See package locking.
func (s *LeaseSet) Tokens() map[string]Token {
	tokens := make(map[string]Token, len(s.all))
	for _, l := range s.all {
		tokens[l.lockName()] = l.Token()
	}
	return tokens
}

// Remaining returns the time for which the holder may rely on all leases without another renewal. It is negative once one of them has ended.
func (s *LeaseSet) Remaining() time.Duration {
	least := s.all[0].Remaining()
	for _, l := range s.all[1:] {
		least = min(least, l.Remaining())
	}
	return least
}

// Length returns the length of the shortest lease without renewal.
func (s *LeaseSet) Length() time.Duration {
	least := s.all[0].Length()
	for _, l := range s.all[1:] {
		least = min(least, l.Length())
	}
	return least
}

// Deadline returns the instant until which the holder may rely on all leases without another renewal: see [Lease.Deadline].
func (s *LeaseSet) Deadline() time.Duration {
	first := s.all[0].Deadline()
	for _, l := range s.all[1:] {
		first = min(first, l.Deadline())
	}
	return first
}

// OnExtend calls f with the new deadline of the set whenever that deadline has moved, until stop is called: see [Lease.OnExtend].
func (s *LeaseSet) OnExtend(f func(deadline time.Duration)) (stop func()) {
	var mu sync.Mutex // several leases may be renewed concurrently
	told := s.Deadline()
	extended := func(time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if d := s.Deadline(); d > told {
			told = d
			f(d)
		}
	}
	var stops []func()
	for _, l := range s.all {
		stops = append(stops, l.OnExtend(extended))
	}
	return func() {
		for _, end := range stops {
			end()
		}
	}
}

// Release ends all leases: first the context, which must be the end of the work, then all rows at once. See package locking.
func (s *LeaseSet) Release(ctx context.Context) error {
	errs := s.lostErrors()
	s.end(ErrReleased)
	var releases sync.WaitGroup
	for i, l := range s.all {
		releases.Go(func() {
			if err := l.Release(ctx); err != nil && (errs[i] == nil || !errors.Is(err, ErrLost)) {
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	releases.Wait()
	return errors.Join(errs...)
}

// lostErrors returns an error for each lease that was lost before the release. Only the first release returns these errors.
func (s *LeaseSet) lostErrors() []error {
	errs := make([]error, len(s.all))
	if s.released.Swap(true) {
		return errs
	}
	for i, l := range s.all {
		if why := context.Cause(l.ctx); errors.Is(why, ErrLost) {
			errs[i] = fmt.Errorf("release %q: lost before: %w", l.lockName(), why)
		}
	}
	return errs
}
