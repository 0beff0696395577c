package redis

import (
	"cmp"
	"context"
	"fmt"

	"github.com/cronclave/cronclave/internal/lease"
)

// AcquireSet asks once for a row of each lock. If it returns no grants, refused is the name of the lock that refused, and refusal its result.
func (c *Store) AcquireSet(ctx context.Context, requests []lease.Request) (grants []lease.Grant, refusal lease.Result, refused string) {
	if err := c.cfg.Work.Ready(); err != nil {
		return nil, lease.Failed(fmt.Errorf("lock %q and more: %w", requests[0].Lock, err)), ""
	}
	got := c.execCalls(ctx, []call{c.setCall(requests)})[0]
	switch {
	case got.err == nil && got.verdict == "granted" && len(got.parts) == len(requests):
		grants, result := c.grantAll(requests, got)
		return grants, result, ""
	case got.err == nil && got.verdict == "refused" && got.place >= 1 && got.place <= len(requests) && len(got.parts) > 0:
		r := requests[got.place-1]
		return nil, c.answerOf(r, got.parts[0]).Result, r.Lock
	case got.err == nil && got.verdict == "late":
		return nil, c.answerOf(requests[0], reply{verdict: "late", acked: true}).Result, ""
	}
	return nil, c.answerOf(requests[0], reply{err: cmp.Or(got.err, lease.ErrUnknown)}).Result, ""
}

// setCall returns the call for a set of locks.
func (c *Store) setCall(requests []lease.Request) call {
	k := call{script: c.scripts.AcquireSet, lock: requests[0].Lock, id: requests[0].ID}
	for _, r := range requests {
		part := c.newCall(c.scripts.Acquire, r.Lock, r.ID, false, acquireArgs(r, c.cfg.Owner)...)
		k.parts, k.keys = append(k.parts, part), append(k.keys, part.keys...)
		k.undo = append(k.undo, c.releaseCall(lease.Withdrawal(r)))
	}
	k.sync = k.parts[0].sync
	return k
}

// grantAll returns the grants of a set.
func (c *Store) grantAll(requests []lease.Request, got reply) ([]lease.Grant, lease.Result) {
	grants := make([]lease.Grant, len(requests))
	now := c.cfg.Clock()
	for i, r := range requests {
		part := got.parts[i]
		if !got.acked && c.mustLast(r, part) {
			return nil, lease.Failed(fmt.Errorf("acquire %q: %w", r.Lock, c.unackedError()))
		}
		grants[i] = c.grantOf(r, part)
		grants[i].Received = now
		if err := grants[i].Check(r); err != nil {
			return nil, lease.Failed(err)
		}
	}
	return grants, lease.Result{Verdict: lease.Granted}
}
