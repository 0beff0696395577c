package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/register"
)

// Run is a lease as a scheduler has it: the run of a tick, which has attempts, can be asked to stop, and ends with an outcome.
type Run struct{ *Lease }

// RunOf is the run of a lease.
func RunOf(l *Lease) Run { return Run{l} }

// Attempt is 1, or more for an adopted run, and after [Run.NextAttempt].
func (l Run) Attempt() int { return int(l.attempt.Load()) }

// Tick is the tick that was granted with the lease; zero without one.
func (l Run) Tick() time.Time { return clock.FromMicros(l.tick * 1e6) }

// NextAttempt counts another attempt of the same work under the same lease, and returns its number once the
// server has acknowledged it. The attempt must not begin before: a holder that dies then leaves an orphan of
// this attempt at least, so the number is not given out again. While the server does not answer, NextAttempt
// asks again for the same number, until ctx or the lease ends. The error says which of the two ended, and it is
// [ErrUnknown] too where the server may have counted the attempt all the same; a later call asks for the same
// number again.
func (l Run) NextAttempt(ctx context.Context) (attempt int, err error) {
	for {
		n := l.attempt.Load() + 1
		l.propose(n)
		if err := l.acknowledge(ctx); err != nil {
			return 0, fmt.Errorf("begin attempt %d under a lease of %q: %w", n, l.lock, err)
		}
		if l.attempt.CompareAndSwap(n-1, n) { // else another caller has this number
			return int(n), nil
		}
	}
}

// propose raises the attempt that requests carry from now on.
func (l *Lease) propose(n int64) {
	for {
		old := l.proposed.Load()
		if old >= n || l.proposed.CompareAndSwap(old, n) {
			return
		}
	}
}

// acknowledge asks until the server has acknowledged the proposed attempt, or ctx or the lease ends. A request that is under way then is left to the client.
func (l *Lease) acknowledge(ctx context.Context) error {
	c := l.client
	ended := func(last error) error {
		if why := context.Cause(l.ctx); why != nil {
			return why
		}
		return fmt.Errorf("%w (%w)", last, context.Cause(ctx))
	}
	last := ErrUnknown
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, c.cfg.Timeout) {
		answer := make(chan error, 1)
		if !c.work.Go(func() { answer <- l.tellAttempt() }) {
			return ErrClosed
		}
		select {
		case err := <-answer:
			if errors.Is(err, ErrLost) {
				c.keeper.remove(l)
				l.stop(err)
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
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return ended(last)
		case <-l.ctx.Done():
			return ended(last)
		}
	}
}

// tellAttempt asks once. Without an error the server, and the replicas that must, have the proposed attempt, and
// the lease has been renewed: an attempt that begins after a long wait would otherwise have to stop at once.
func (l *Lease) tellAttempt() error {
	c := l.client
	if err := c.store.enterAttempt(l); err != nil {
		return err
	}
	if !l.goesOutAgain() {
		return cmp.Or(context.Cause(l.ctx), ErrReleased)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.Timeout)
	defer cancel()
	got := c.store.renew(ctx, []*Lease{l})[0]
	switch {
	case got.err == nil && !got.acked:
		return c.unacked()
	case got.verdict == "renewed":
		l.extend(got.sent + holdFor(time.Duration(got.Number(0)-got.now)*time.Microsecond))
		l.askToStop(got.Text(2))
		return nil
	case got.verdict == "lost":
		return fmt.Errorf("%w: %s", ErrLost, lostWhy(got))
	}
	return cmp.Or(got.err, ErrUnknown)
}

// goesOutAgain is goesOut for a lease that is not being released. A renewal would arrive behind a release that
// leaves no tombstone, because less was known of the lease when that release was made.
func (l *Lease) goesOutAgain() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.giving || l.ctx.Err() != nil {
		return false
	}
	l.ticket = nil
	return true
}

// enterAttempt enters the proposed attempt of a run in the register. Of a lease that is not accounted for nothing needs to be known: it leaves no orphan.
func (q *quorum) enterAttempt(l *Lease) error {
	if !l.accounted {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*q.cfg.Timeout)
	defer cancel()
	known, err := q.amend(ctx, l, func(_ *register.Register, run *register.Run, _ int64) {
		run.Attempt = max(run.Attempt, int(l.proposed.Load()))
	})
	if err == nil && !known {
		err = fmt.Errorf("%w: its run has ended for the others", ErrLost)
	}
	return err
}
