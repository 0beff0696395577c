package quorum

import (
	"context"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
)

// Acquire brings requests to their results.
func (q *Store) Acquire(ctx context.Context, requests []lease.Request, answered func(place int, r lease.Result)) {
	fail := func(err error) {
		for i, r := range requests {
			answered(i, lease.Failed(fmt.Errorf("acquire %q: %w", r.Lock, err)))
		}
	}
	if err := q.ready(); err != nil {
		fail(err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*q.cfg.Timeout)
	defer cancel()
	if _, err := q.ServerTime(ctx); err != nil { // without which the first proposal would be refused
		fail(err)
		return
	}
	tasks := make([]task, len(requests))
	last := map[string]*claim{} // by lock
	for i, r := range requests {
		t := q.newClaim(r, i, answered)
		t.older = last[r.Lock]
		last[r.Lock], tasks[i] = t, t
	}
	q.run(ctx, tasks)
}

// longestRest is the longest pause between two tries.
const longestRest = 100 * time.Millisecond

// Wait asks again and again, at pauses that grow.
func (q *Store) Wait(ctx context.Context, r lease.Request) (lease.Grant, error) {
	contended := false
	var fault error // why nothing is known, if that is so
	for pause := lease.ShortestPause; ; pause = min(2*pause, longestRest) {
		a := q.acquireOne(ctx, r)
		if a.Verdict != lease.Unknown {
			fault = nil
		}
		switch {
		case a.Verdict == lease.Granted:
			return a.Grant, nil
		case a.Verdict == lease.Unknown && !a.Unsure():
			return lease.Grant{}, a.Err
		case a.Verdict == lease.Unknown && ctx.Err() == nil: // else the reply says no more
			fault = a.Err
		case a.Verdict == lease.Held && !contended:
			contended = true
			q.cfg.Contended(r.Lock, a.Holder)
		}
		select {
		case <-ctx.Done():
			return lease.Grant{}, lease.WaitError(ctx, fault)
		case <-q.cfg.Work.Life().Done():
			return lease.Grant{}, lease.ErrClosed // the last request may have been lost
		case <-time.After(lease.RetryAfter(pause, a.Until, q.now())):
		}
	}
}

// now is the servers' time; zero before the first reply.
func (q *Store) now() time.Time {
	if micros, ok := q.Estimate(q.cfg.Clock()); ok {
		return clock.FromMicros(micros)
	}
	return time.Time{}
}

func (q *Store) acquireOne(ctx context.Context, r lease.Request) (result lease.Result) {
	q.Acquire(ctx, []lease.Request{r}, func(_ int, got lease.Result) { result = got })
	return result
}
