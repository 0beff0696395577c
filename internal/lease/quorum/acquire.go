package quorum

import (
	"context"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
)

// Acquire asks for a row for each request: see [lease.Store].
func (q *Store) Acquire(ctx context.Context, requests []lease.Request, answer func(place int, r lease.Result)) {
	fail := func(err error) {
		for i, r := range requests {
			answer(i, lease.Failed(fmt.Errorf("acquire %q: %w", r.Lock, err)))
		}
	}
	if err := q.cfg.Work.Ready(); err != nil {
		fail(err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*q.cfg.Timeout)
	defer cancel()
	if _, err := q.ServerTime(ctx); err != nil { // without an estimate of the nodes' time, they would refuse the first token
		fail(err)
		return
	}
	tasks := make([]task, len(requests))
	last := map[string]*claim{} // the newest claim of each lock
	for i, r := range requests {
		t := q.newClaim(r, i, answer)
		t.older = last[r.Lock]
		last[r.Lock], tasks[i] = t, t
	}
	q.runTasks(ctx, tasks)
}

// now returns the estimate of the nodes' time; zero if there is none yet.
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
