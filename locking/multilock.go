package locking

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/lease"
)

// A MultiLock is a set of mutexes. It locks all of them or none, in one atomic step on the server. It holds no lock while it waits, so it cannot
// deadlock with other sets or with single locks.
type MultiLock struct {
	client  *Client
	names   []string
	options []Option
}

// mostLocks bounds a set, because Redis executes nothing else while it grants a set.
const mostLocks = 100

// MultiLock returns the set of the mutexes with these names, in any order. It does not call Redis. Several names must have the same hash tag, as in
// "{orders}:1" and "{orders}:2", so that all keys are on one node of a Redis Cluster: see [Tagged].
func (c *Client) MultiLock(names ...string) *MultiLock {
	return &MultiLock{client: c, names: slices.Sorted(slices.Values(names))}
}

// With returns the same set with options for all its locks. Only [WithLease] and [WithDelay] are allowed.
func (s *MultiLock) With(options ...Option) *MultiLock {
	return &MultiLock{s.client, s.names, slices.Concat(s.options, options)}
}

// TryLock locks all mutexes if each of them is free. ok reports whether they were locked. If the server does not answer, TryLock retries with the
// same lease ids, as [Semaphore.TryAcquire] does.
func (s *MultiLock) TryLock(ctx context.Context) (leases *LeaseSet, ok bool, err error) {
	requests, err := s.lockRequests()
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.client.requests.TryFor(requests[0].Lease))
	defer cancel()
	leases, refusal, err := s.tryAll(ctx, requests)
	if refusal.Verdict == lease.Held {
		s.client.cfg.Hooks.reportContention(refusal.lock, refusal.Holder)
	}
	return leases, leases != nil, err
}

// Lock waits until it has locked all mutexes, or ctx ends. Sets have no queue: Lock polls after growing pauses, and when the lease that blocks the
// set expires. Lock does not overtake callers that wait for one of the mutexes, so it may wait long if the mutexes are in constant use.
func (s *MultiLock) Lock(ctx context.Context) (*LeaseSet, error) {
	requests, err := s.lockRequests()
	if err != nil {
		return nil, err
	}
	if !s.client.work.Begin() { // Close waits until this call has returned
		return nil, fmt.Errorf("lock %s: %w", lease.QuoteNames(s.names), ErrClosed)
	}
	defer s.client.work.Done()
	began, reported := s.client.cfg.Clock(), false
	for again := backoff.New(lease.ShortestPause, longestPause); ; {
		leases, refusal, err := s.tryAll(ctx, requests)
		switch {
		case err != nil:
			return nil, err
		case leases != nil:
			s.reportWait(s.client.cfg.Clock() - began)
			return leases, nil
		case !reported && refusal.Verdict == lease.Held:
			reported = true
			s.client.cfg.Hooks.reportContention(refusal.lock, refusal.Holder)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: %w", lease.QuoteNames(s.names), context.Cause(ctx))
		case <-s.client.work.Life().Done():
			return nil, fmt.Errorf("lock %s: %w", lease.QuoteNames(s.names), ErrClosed)
		case <-time.After(lease.RetryAfter(again.Next(), refusal.Until, s.client.estimatedTime())):
		}
	}
}

// longestPause bounds the pause between two requests for a set that is not free.
const longestPause = 500 * time.Millisecond

func (s *MultiLock) reportWait(wait time.Duration) {
	for _, name := range s.names {
		s.client.cfg.Hooks.reportWait(name, wait)
	}
}

func (s *MultiLock) lockerStore() (lease.SetLocker, error) {
	return lease.StoreAs[lease.SetLocker](s.client.store, "lock several at once")
}

// lockRequests returns the request for each lock, without lease ids.
func (s *MultiLock) lockRequests() ([]lease.Request, error) {
	if _, err := s.lockerStore(); err != nil {
		return nil, err
	}
	if err := checkNames(s.names); err != nil {
		return nil, fmt.Errorf("lock %s: %w", lease.QuoteNames(s.names), err)
	}
	t := termsOf(s.options)
	if t.anyLimit {
		return nil, fmt.Errorf("lock %s: a set of mutexes takes a lease and a delay, and not any limit", lease.QuoteNames(s.names))
	}
	requests := make([]lease.Request, len(s.names))
	for i, name := range s.names {
		requests[i] = lease.Request{Lock: name, Slots: 1, Lease: t.lease, Delay: t.delay}.WithDefaults()
		if err := requests[i].Validate(); err != nil {
			return nil, fmt.Errorf("lock %s: %w", lease.QuoteNames(s.names), err)
		}
	}
	return requests, nil
}

// checkNames returns an error for names that can't be locked together. The caller has sorted them.
func checkNames(names []string) error {
	if len(names) == 0 || len(names) > mostLocks {
		return fmt.Errorf("%d locks at once: it must be from 1 to %d", len(names), mostLocks)
	}
	for i, name := range names {
		if err := lease.CheckName(name); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		if i > 0 && name == names[i-1] {
			return fmt.Errorf("%q is named twice", name)
		}
		if i > 0 && (tagOf(name) == "" || tagOf(name) != tagOf(names[0])) {
			return fmt.Errorf("%q and %q have no hash tag in common, without which they could be on different nodes of a Cluster: "+
				"name them as in \"{orders}:1\" and \"{orders}:2\"", names[0], name)
		}
	}
	return nil
}

// tagOf returns the part of a name in braces.
func tagOf(name string) string {
	_, rest, _ := strings.Cut(name, "{")
	tag, _, _ := strings.Cut(rest, "}")
	return tag
}

// A refusal is the result of the lock that refused a set.
type refusal struct {
	lease.Result
	lock string
}

// tryAll repeats a request until its outcome is known, or ctx has ended. If leases and err are nil, the refusal has the holder that blocks the set.
func (s *MultiLock) tryAll(ctx context.Context, requests []lease.Request) (leases *LeaseSet, r refusal, err error) {
	if s.client.work.Begin() { // Close waits until this call has taken back its grants
		defer s.client.work.Done()
	}
	locker, err := s.lockerStore()
	if err != nil {
		return nil, r, err
	}
	requests = withIDs(requests)
	for retry := lease.NewRetry(s.client.cfg.Timeout); ; {
		grants, result, refused := locker.AcquireSet(ctx, requests)
		a := refusal{result, refused}
		switch {
		case grants != nil:
			return s.makeLeases(requests, grants), a, nil
		case a.Verdict != lease.Unknown:
			return nil, a, nil
		case errors.Is(a.Err, ErrReleased): // the reply to an earlier refusal was lost, or the set was granted and lost in part
			s.withdrawAll(requests)
			requests = withIDs(requests)
			err = cmp.Or(err, ErrUnknown)
		case !a.Unsure():
			if err != nil || errors.Is(a.Err, ErrRefused) { // an earlier try may have been granted, or a part of this try
				s.withdrawAll(requests)
			}
			return nil, a, a.Err
		default:
			err = a.Err
		}
		if s.client.work.Sleep(ctx, retry.Next()); ctx.Err() != nil {
			s.withdrawAll(requests)
			return nil, a, fmt.Errorf("lock %s: %w (%w)", lease.QuoteNames(s.names), err, context.Cause(ctx))
		}
	}
}

func (s *MultiLock) makeLeases(requests []lease.Request, grants []lease.Grant) *LeaseSet {
	leases := make([]*Lease, len(grants))
	for i := range grants {
		leases[i] = s.client.hold(&requests[i], &grants[i])
	}
	return newLeaseSet(leases)
}

// withdrawAll undoes grants of a set whose outcome is unknown.
func (s *MultiLock) withdrawAll(requests []lease.Request) {
	var all sync.WaitGroup
	for _, r := range requests {
		all.Go(func() { s.client.requests.Withdraw(r, r.ID) })
	}
	all.Wait()
}

// withIDs returns the requests with new lease ids that have a common prefix.
func withIDs(requests []lease.Request) []lease.Request {
	requests = slices.Clone(requests)
	set := rand.Text()
	for i := range requests {
		requests[i].ID = fmt.Sprintf("%s.%d", set, i+1)
	}
	return requests
}

// A LeaseSet holds the leases of several locks: see [Client.MultiLock] and [LeaseSetOf]. Each lease is renewed on its own. A LeaseSet is safe for
// concurrent use.
type LeaseSet struct {
	all        []*Lease // sorted by name, if a MultiLock granted them
	ctx        context.Context
	end        context.CancelCauseFunc
	endangered signal // set as soon as one of the leases is endangered
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

// LeaseSetOf combines leases that were granted one by one, for work that needs all of them. Releasing a single lease is allowed, and ends the context
// of the set. A lease may be in at most one set.
func LeaseSetOf(first *Lease, others ...*Lease) *LeaseSet {
	return newLeaseSet(append([]*Lease{first}, others...))
}

// Context returns a context that ends a moment after any of the leases has ended. context.Cause names this lease and the reason. The other leases are
// held until [LeaseSet.Release].
func (s *LeaseSet) Context() context.Context { return s.ctx }

// Endangered returns a channel that is closed when any of the leases is endangered: see [Lease.Endangered].
func (s *LeaseSet) Endangered() <-chan struct{} { return s.endangered.doneChannel() }

// joinSet connects a LeaseSet's signal of danger to this lease: checkDeadline sets it with the lease's own, and joinSet does so if that is set already.
func (l *Lease) joinSet(set *signal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ofSet = set; l.warned {
		set.setOnce()
	}
}

// Lease returns the lease of the lock with this name, or nil if the set has none.
func (s *LeaseSet) Lease(name string) *Lease {
	i := slices.IndexFunc(s.all, func(l *Lease) bool { return l.lockName() == name })
	if i < 0 {
		return nil
	}
	return s.all[i]
}

// Tokens returns the fencing tokens by the names of their locks. Compare a token only with other tokens of the same lock.
func (s *LeaseSet) Tokens() map[string]Token {
	tokens := make(map[string]Token, len(s.all))
	for _, l := range s.all {
		tokens[l.lockName()] = l.Token()
	}
	return tokens
}

func (s *LeaseSet) least(of func(*Lease) time.Duration) time.Duration {
	least := of(s.all[0])
	for _, l := range s.all[1:] {
		least = min(least, of(l))
	}
	return least
}

// Remaining returns the time for which the holder may rely on all leases without a renewal. It is negative after the end of any lease.
func (s *LeaseSet) Remaining() time.Duration {
	return s.least((*Lease).Remaining)
}

// Length returns the shortest [Lease.Length] of the leases.
func (s *LeaseSet) Length() time.Duration {
	return s.least((*Lease).Length)
}

// Deadline returns the instant until which the holder may rely on all leases unless they are renewed: see [Lease.Deadline].
func (s *LeaseSet) Deadline() time.Duration {
	return s.least((*Lease).Deadline)
}

// OnExtend calls f whenever the deadline of the whole set changes, until stop is called: see [Lease.OnExtend].
func (s *LeaseSet) OnExtend(f func(deadline time.Duration)) (stop func()) {
	var mu sync.Mutex // several leases may be renewed concurrently
	reported := s.Deadline()
	extended := func(time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if d := s.Deadline(); d > reported {
			reported = d
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

// Release ends the context and then frees the slots of all leases at once. Call it after the work has ended. Like [Lease.Release], it works even if
// ctx has ended. The error names each lease that was lost before the Release ([ErrLost]), and each lease for which the server did not answer
// ([ErrUnknown]). A second Release is not an error.
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
