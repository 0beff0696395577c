package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// longestRest is the longest pause between two tries.
const longestRest = 100 * time.Millisecond

// wait asks for a row until it is granted or ctx ends.
func (q *quorum) wait(ctx context.Context, r Request) (*Lease, error) {
	began, told := q.cfg.Clock(), false
	var fault error // why nothing is known, if that is so
	for pause := shortestPause; ; pause = min(2*pause, longestRest) {
		a := q.acquireOne(ctx, r)
		if a.Verdict != Unknown {
			fault = nil
		}
		switch {
		case a.Verdict == Granted:
			q.cfg.Hooks.waited(r.Lock, q.cfg.Clock()-began)
			return a.Lease, nil
		case a.Verdict == Unknown && !a.Unsure():
			q.quit(r)
			return nil, fmt.Errorf("lock %q: %w", r.Lock, a.Err)
		case a.Verdict == Unknown && ctx.Err() == nil: // else the reply says no more
			fault = a.Err
		case a.Verdict == Held && !told:
			told = true
			q.cfg.Hooks.contended(a, r.Lock)
		}
		select {
		case <-ctx.Done():
			q.quit(r)
			return nil, fmt.Errorf("lock %q: %w", r.Lock, inVain(ctx, fault))
		case <-q.work.Life().Done():
			q.quit(r) // the last request may have been lost
			return nil, fmt.Errorf("lock %q: %w", r.Lock, ErrClosed)
		case <-time.After(q.untilNextTry(a.Until, pause)):
		}
	}
}

// acquireOne is [Client.Acquire] without the hook of contention, which is told once for all tries.
func (q *quorum) acquireOne(ctx context.Context, r Request) Answer {
	if err := errors.Join(r.Validate(), lease.CheckName(r.Lock), q.ready()); err != nil {
		return Answer{Verdict: Unknown, ID: r.ID, Err: err}
	}
	answers := make([]Answer, 1)
	q.acquire(ctx, []Request{r}, answers, []int{0})
	return answers[0]
}
