package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// MultiLock is a set of mutexes that are locked together, all of them or none, in one atomic step on the server. See package locking.
type MultiLock struct {
	client  *Client
	names   []string
	options []Option
}

// mostLocks bounds a set: the server does nothing else while it grants one.
const mostLocks = 100

// MultiLock is the set of the mutexes of these names, in any order. See package locking.
func (c *Client) MultiLock(names ...string) *MultiLock {
	return &MultiLock{client: c, names: slices.Sorted(slices.Values(names))}
}

// With is the same set with options, of which [WithLease] and [WithDelay] have a meaning here. See package locking.
func (s *MultiLock) With(options ...Option) *MultiLock {
	return &MultiLock{s.client, s.names, slices.Concat(s.options, options)}
}

// TryLock locks all mutexes if none of them is held; ok reports whether it did. See package locking.
func (s *MultiLock) TryLock(ctx context.Context) (leases *LeaseSet, ok bool, err error) {
	requests, err := s.requests()
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.client.tryFor(requests[0].Lease))
	defer cancel()
	leases, refusal, err := s.try(ctx, requests)
	s.client.cfg.Hooks.contended(refusal.Answer, refusal.lock)
	return leases, leases != nil, err
}

// Lock waits until it has locked all mutexes, or ctx ends. See package locking.
func (s *MultiLock) Lock(ctx context.Context) (*LeaseSet, error) {
	requests, err := s.requests()
	if err != nil {
		return nil, err
	}
	if !s.client.work.Begin() { // which has Close wait for it
		return nil, fmt.Errorf("lock %s: %w", quoted(s.names), ErrClosed)
	}
	defer s.client.work.Done()
	began, told := s.client.cfg.Clock(), false
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		leases, refusal, err := s.try(ctx, requests)
		switch {
		case err != nil:
			return nil, err
		case leases != nil:
			s.waited(s.client.cfg.Clock() - began)
			return leases, nil
		case !told && refusal.Verdict == Held:
			told = true
			s.client.cfg.Hooks.contended(refusal.Answer, refusal.lock)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: %w", quoted(s.names), context.Cause(ctx))
		case <-s.client.work.Life().Done():
			return nil, fmt.Errorf("lock %s: %w", quoted(s.names), ErrClosed)
		case <-time.After(s.client.untilNextTry(refusal.Until, pause)):
		}
	}
}

// A set is asked for again at pauses that grow.
const shortestPause, longestPause = 10 * time.Millisecond, 500 * time.Millisecond

// untilNextTry is a pause, or less if the lease that is in the way runs out before.
func (c *Client) untilNextTry(runsOut time.Time, pause time.Duration) time.Duration {
	wait := pause/2 + mathrand.N(pause)
	now, ok := c.EstimatedTime()
	if !ok || runsOut.IsZero() {
		return wait
	}
	return min(wait, max(runsOut.Sub(now), 0)+shortestPause/2+mathrand.N(shortestPause))
}

func (s *MultiLock) waited(wait time.Duration) {
	for _, name := range s.names {
		s.client.cfg.Hooks.waited(name, wait)
	}
}

func (s *MultiLock) locker() (setLocker, error) {
	return only[setLocker](s.client, "lock several at once")
}

// requests returns the request for each lock, without lease ids.
func (s *MultiLock) requests() ([]Request, error) {
	if _, err := s.locker(); err != nil {
		return nil, err
	}
	if err := checkNames(s.names); err != nil {
		return nil, fmt.Errorf("lock %s: %w", quoted(s.names), err)
	}
	t := termsOf(s.options)
	if t.anyLimit {
		return nil, fmt.Errorf("lock %s: a set of mutexes takes a lease and a delay, and not any limit", quoted(s.names))
	}
	requests := make([]Request, len(s.names))
	for i, name := range s.names {
		requests[i] = Request{Lock: name, Slots: 1, Lease: t.lease, Delay: t.delay}.WithDefaults()
		if err := requests[i].Validate(); err != nil {
			return nil, fmt.Errorf("lock %s: %w", quoted(s.names), err)
		}
	}
	return requests, nil
}

// checkNames refuses names that can't be locked together; the names are sorted.
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

// tagOf is what a name has in braces.
func tagOf(name string) string {
	_, rest, _ := strings.Cut(name, "{")
	tag, _, _ := strings.Cut(rest, "}")
	return tag
}

func quoted(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	var all []string
	for i, name := range names {
		if i == 5 {
			all = append(all, fmt.Sprintf("%d more", len(names)-i))
			break
		}
		all = append(all, strconv.Quote(name))
	}
	return strings.Join(all, ", ")
}

// refusal is the answer of the lock that refused a set.
type refusal struct {
	Answer
	lock string
}

// try asks until the outcome is known, or ctx has ended. Without leases and error, the refusal names the holder
// that is in the way.
func (s *MultiLock) try(ctx context.Context, requests []Request) (leases *LeaseSet, r refusal, err error) {
	if s.client.work.Begin() { // so that Close waits for the grants being taken back
		defer s.client.work.Done()
	}
	locker, err := s.locker()
	if err != nil {
		return nil, r, err
	}
	requests = withIDs(requests)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, s.client.cfg.Timeout) {
		all, a := locker.ask(ctx, requests)
		switch {
		case all != nil:
			return newLeaseSet(all), a, nil
		case a.Verdict != Unknown:
			return nil, a, nil
		case errors.Is(a.Err, ErrReleased): // it was refused before, without a reply; or granted, and lost in part
			s.quit(requests)
			requests = withIDs(requests)
			err = cmp.Or(err, ErrUnknown)
		case !a.Unsure():
			if err != nil || errors.Is(a.Err, ErrRefused) { // an earlier try may have been granted, or this one in part
				s.quit(requests)
			}
			return nil, a, a.Err
		default:
			err = a.Err
		}
		if s.client.rest(ctx, pause/2+mathrand.N(pause)); ctx.Err() != nil {
			s.quit(requests)
			return nil, a, fmt.Errorf("lock %s: %w (%w)", quoted(s.names), err, context.Cause(ctx))
		}
	}
}

// quit takes back what a set may have been granted.
func (s *MultiLock) quit(requests []Request) {
	var all sync.WaitGroup
	for _, r := range requests {
		all.Go(func() { s.client.quit(r) })
	}
	all.Wait()
}

// withIDs are the requests with new lease ids, which show that they belong together.
func withIDs(requests []Request) []Request {
	requests = slices.Clone(requests)
	set := rand.Text()
	for i := range requests {
		requests[i].ID = fmt.Sprintf("%s.%d", set, i+1)
	}
	return requests
}

// ask asks once for a row of each lock. Without leases, the answer is that of the lock which refused.
func (c *single) ask(ctx context.Context, requests []Request) ([]*Lease, refusal) {
	if err := c.ready(); err != nil {
		return nil, refusal{Answer{Verdict: Unknown, Err: fmt.Errorf("lock %q and more: %w", requests[0].Lock, err)}, ""}
	}
	got := c.exec(ctx, []call{c.several(requests)})[0]
	switch {
	case got.err == nil && got.verdict == "granted" && len(got.parts) == len(requests):
		leases, a := c.grantAll(requests, got)
		return leases, refusal{a, ""}
	case got.err == nil && got.verdict == "refused" && got.place >= 1 && got.place <= len(requests) && len(got.parts) > 0:
		refused := requests[got.place-1]
		return nil, refusal{c.answer(refused, got.parts[0]), refused.Lock}
	case got.err == nil && got.verdict == "late":
		return nil, refusal{c.answer(requests[0], reply{verdict: "late", acked: true}), ""}
	}
	return nil, refusal{c.answer(requests[0], reply{err: cmp.Or(got.err, ErrUnknown)}), ""}
}

// several is the call for a set of locks.
func (c *single) several(requests []Request) call {
	k := call{script: c.scripts.AcquireSet, lock: requests[0].Lock, id: requests[0].ID}
	for _, r := range requests {
		part := c.call(c.scripts.Acquire, r.Lock, r.ID, false, acquireArgs(r, c.cfg.Owner)...)
		k.parts, k.keys = append(k.parts, part), append(k.keys, part.keys...)
		k.undo = append(k.undo, c.releasing(withdrawal(r)))
	}
	k.sync = k.parts[0].sync
	return k
}

// grantAll makes the leases of a set.
func (c *single) grantAll(requests []Request, got reply) ([]*Lease, Answer) {
	leases := make([]*Lease, len(requests))
	now := c.cfg.Clock()
	for i, r := range requests {
		part := got.parts[i]
		if !got.acked && c.mustLast(r, part) {
			return nil, Answer{Verdict: Unknown, Err: fmt.Errorf("acquire %q: %w", r.Lock, c.unacked())}
		}
		leases[i] = newLease(c.Client, r, part)
		if now >= leases[i].deadline {
			return nil, Answer{Verdict: Unknown, Err: fmt.Errorf("acquire %q: %w: the reply took longer than the lease of %v", r.Lock, ErrUnknown, r.Lease)}
		}
	}
	for i, l := range leases {
		leases[i] = c.keeper.add(l)
	}
	return leases, Answer{Verdict: Granted}
}
