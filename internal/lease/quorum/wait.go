package quorum

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/lease"
)

// longestRest bounds the pause between two requests.
const longestRest = 100 * time.Millisecond

// Wait repeats a request with growing pauses until it is granted or ctx ends.
func (q *Store) Wait(ctx context.Context, r lease.Request) (lease.Grant, error) {
	contended := false
	var fault error // the error of the last request, if its outcome is unknown
	for again := backoff.New(lease.ShortestPause, longestRest); ; {
		a := q.acquireOne(ctx, r)
		if a.Verdict != lease.Unknown {
			fault = nil
		}
		switch {
		case a.Verdict == lease.Granted:
			return a.Grant, nil
		case a.Verdict == lease.Unknown && !a.Unsure():
			return lease.Grant{}, a.Err
		case a.Verdict == lease.Unknown && ctx.Err() == nil: // after the end of ctx, the error only says that ctx has ended
			fault = a.Err
		case a.Verdict == lease.Held && !contended:
			contended = true
			q.cfg.Contended(r.Lock, a.Holder)
		}
		select {
		case <-ctx.Done():
			return lease.Grant{}, lease.WaitError(ctx, fault)
		case <-q.cfg.Work.Life().Done():
			return lease.Grant{}, lease.ErrClosed // the client was closed
		case <-time.After(lease.RetryAfter(again.Next(), a.Until, q.now())):
		}
	}
}
