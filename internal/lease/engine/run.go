package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A Run is a lease with the methods that a scheduler needs: the run of a tick has attempts, can be asked to stop, and ends with an outcome.
type Run struct{ *Lease }

// RunOf returns the run of a lease.
func RunOf(l *Lease) Run { return Run{l} }

// Attempt returns the number of the current attempt. It is 1 at first, or more for an adopted run, and [Run.NextAttempt] raises it.
func (l Run) Attempt() int { return int(l.attempt.Load()) }

// Tick returns the tick that was granted with the lease; zero without one.
func (l Run) Tick() time.Time { return lease.FromMicros(l.row.Grant.Tick * 1e6) }

// NextAttempt records another attempt of the same work under the same lease, and returns its number once Redis has acknowledged it. The attempt must
// not begin before NextAttempt returns. If the holder dies, its orphan then has at least this attempt, so no other client gets the same number. While
// Redis does not answer, NextAttempt repeats the request with the same number, until ctx or the lease ends. The error wraps the cause of that end,
// and [ErrUnknown] if Redis may have recorded the attempt. A later call asks for the same number again.
func (l Run) NextAttempt(ctx context.Context) (attempt int, err error) {
	for {
		n := l.attempt.Load() + 1
		l.proposeAttempt(n)
		if err := l.awaitAck(ctx); err != nil {
			return 0, fmt.Errorf("begin attempt %d under a lease of %q: %w", n, l.lockName(), err)
		}
		if l.attempt.CompareAndSwap(n-1, n) { // if it fails, another caller has this number
			return int(n), nil
		}
	}
}

// proposeAttempt raises the attempt number that later renewals carry.
func (l *Lease) proposeAttempt(n int64) {
	for {
		old := l.proposed.Load()
		if old >= n || l.proposed.CompareAndSwap(old, n) {
			return
		}
	}
}

// awaitAck repeats a request until Redis has acknowledged the proposed attempt, or ctx or the lease ends. A request that is still under way when
// awaitAck returns continues in the background.
func (l *Lease) awaitAck(ctx context.Context) error {
	c := l.client
	ended := func(last error) error {
		if why := context.Cause(l.ctx); why != nil {
			return why
		}
		return fmt.Errorf("%w (%w)", last, context.Cause(ctx))
	}
	last := ErrUnknown
	for retry := lease.NewRetry(c.cfg.Timeout); ; {
		answer := make(chan error, 1)
		if !c.work.Go(func() { answer <- l.sendAttempt() }) {
			return ErrClosed
		}
		select {
		case err := <-answer:
			if errors.Is(err, ErrLost) {
				c.keeper.remove(l)
				l.endWith(err)
			}
			if err == nil && l.ctx.Err() == nil {
				return nil
			}
			last = cmp.Or(err, last)
		case <-ctx.Done():
			return ended(last)
		case <-l.ctx.Done():
			return ended(last)
		}
		select {
		case <-time.After(retry.Next()):
		case <-ctx.Done():
			return ended(last)
		case <-l.ctx.Done():
			return ended(last)
		}
	}
}

// sendAttempt sends one request. After success, the proposed attempt is on Redis and on enough of its replicas, and the lease was renewed. Without
// the renewal, little of the lease might be left after a long wait, and its end would stop the new attempt at once.
func (l *Lease) sendAttempt() error {
	c := l.client
	if err := c.store.RecordAttempt(&l.row, l.proposed.Load()); err != nil {
		return err
	}
	if !l.goesOutAgain() {
		return cmp.Or(context.Cause(l.ctx), ErrReleased)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.Timeout)
	defer cancel()
	aside := l.renewalRequest()
	aside.Aside = true
	got := c.store.Renew(ctx, []lease.Renewal{aside})[0]
	switch {
	case got.Done:
		l.extendTo(got.Sent + lease.HoldFor(got.Left))
		l.askToStop(got.Stop)
		return nil
	case got.Lost:
		return fmt.Errorf("%w: %s", ErrLost, got.Why)
	}
	return cmp.Or(got.Err, ErrUnknown)
}

// goesOutAgain is goesOut for a lease that is not being released. It returns false if the lease is being released. A release of a lease that was
// never renewed may leave no tombstone, and a late renewal would then bring the lease back.
func (l *Lease) goesOutAgain() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.giving || l.ctx.Err() != nil {
		return false
	}
	l.renewed = true
	return true
}

// ReleaseWith is [Lease.Release] for a run that followers depend on. well is true if the run succeeded. The lock keeps this outcome until all
// followers have used it: see [lease.InspectRequest]. The outcome of a tick is the outcome of its last lease, or the worst outcome if the tick has
// several grants.
func (l Run) ReleaseWith(ctx context.Context, well bool) error {
	if l.row.Grant.Tick == 0 {
		return l.Release(ctx)
	}
	outcome := lease.OutcomeFailed
	if well {
		outcome = lease.OutcomeSucceeded
	}
	return l.releaseAs(ctx, lease.ReleaseRequest{Outcome: outcome})
}

// MarkSucceeded records in the lock that the work has succeeded. The holder calls it after the work and before the release. If the holder dies before
// the release, its orphan has [lease.Row.EndedWell] set. With followed, MarkSucceeded also records the outcome of the tick for its followers, like
// [Run.ReleaseWith]. After an error, Redis may or may not have recorded the success.
func (l Run) MarkSucceeded(ctx context.Context, followed bool) error {
	return l.client.store.MarkSucceeded(ctx, &l.row, followed)
}
