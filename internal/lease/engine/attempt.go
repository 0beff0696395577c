package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
)

// A Run is a lease as a scheduler uses it: the run of a tick, which has attempts, can be asked to stop, and ends with an outcome.
type Run struct{ *Lease }

// RunOf returns the run of a lease.
func RunOf(l *Lease) Run { return Run{l} }

// Attempt returns the attempt: 1, or more for an adopted run, and after [Run.NextAttempt].
func (l Run) Attempt() int { return int(l.attempt.Load()) }

// Tick returns the tick that was granted with the lease; zero without one.
func (l Run) Tick() time.Time { return clock.FromMicros(l.row.Grant.Tick * 1e6) }

// NextAttempt counts another attempt of the same work under the same lease, and returns its number once the server has acknowledged it. The attempt
// must not begin before that: if the holder dies then, its orphan has at least this attempt, so the number is not given out again. While the server
// does not answer, NextAttempt asks again for the same number, until ctx or the lease ends. The error wraps the cause of the end, and also
// [ErrUnknown] if the server may have counted the attempt all the same. A later call asks for the same number again.
func (l Run) NextAttempt(ctx context.Context) (attempt int, err error) {
	for {
		n := l.attempt.Load() + 1
		l.proposeAttempt(n)
		if err := l.awaitAck(ctx); err != nil {
			return 0, fmt.Errorf("begin attempt %d under a lease of %q: %w", n, l.lockName(), err)
		}
		if l.attempt.CompareAndSwap(n-1, n) { // otherwise another caller has this number
			return int(n), nil
		}
	}
}

// proposeAttempt raises the attempt that requests have from now on.
func (l *Lease) proposeAttempt(n int64) {
	for {
		old := l.proposed.Load()
		if old >= n || l.proposed.CompareAndSwap(old, n) {
			return
		}
	}
}

// awaitAck asks until the server has acknowledged the proposed attempt, or ctx or the lease ends. A request that is under way then goes on in the
// background.
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

// sendAttempt asks once. If it returns no error, the server and enough replicas have the proposed attempt, and the lease was renewed. Without the
// renewal, an attempt that begins after a long wait might have to stop at once.
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

// goesOutAgain is goesOut for a lease that is not being released. Otherwise a renewal could arrive after a release that leaves no tombstone, because
// less was known of the lease when that release was made.
func (l *Lease) goesOutAgain() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.giving || l.ctx.Err() != nil {
		return false
	}
	l.renewed = true
	return true
}
