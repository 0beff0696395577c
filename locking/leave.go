package locking

import (
	"context"
)

// Leave ends the lease of a run that others are to carry on, when its work is over, as for [Lease.Release]: its row makes room, and it is an orphan at
// once, which may be adopted ([Request.Adopt]); clients that [Client.Hear] are told. One that is an orphan already, since the lease was lost, stays one. Where
// there is no trigger, or the server has forgotten the run, nothing is left. attempt is the last one that has begun, from the one that was granted to [Lease.Attempt]. The client that
// adopts the run has the next one, so a number that was acknowledged and never used is free again, unless the lease had been lost before.
func (l *Lease) Leave(ctx context.Context, attempt int) error {
	attempt = max(l.firstAttempt, min(attempt, l.Attempt()))
	if err := l.release(ctx, releaseCall{leaves: true, attempt: attempt}); err != nil {
		return err
	}
	if now, known := l.client.servers.estimate(l.client.cfg.Clock()); known && l.tick > 0 {
		l.mu.Lock()
		l.leftAt = now
		l.mu.Unlock()
		_ = l.client.Tell(ctx, []*Lease{l}, nil) // else they notice when the lease would have ended
	}
	return nil
}

// amend changes what the register says of the run of a lease; known tells whether it has one. edit may be called more than once.
func (q *quorum) amend(ctx context.Context, l *Lease, edit func(g *register, run *runRow, now int64)) (known bool, err error) {
	t := &change{quorum: q, lock: l.lock, permanent: l.permanent, look: true}
	t.edit = func(g *register, v view) {
		var run runRow
		if run, known = g.Runs[l.id]; known {
			edit(g, &run, v.now)
			g.Runs[l.id] = run
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*q.cfg.Timeout)
	defer cancel()
	q.run(ctx, []task{t})
	return known, t.failed
}
