package locking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A run implements [lease.Run], which documents the methods.
type run struct{ *Lease }

func (l run) Attempt() int { return int(l.attempt.Load()) }

func (l run) Tick() time.Time { return lease.FromMicros(l.row.Grant.Tick * 1e6) }

func (l run) NextAttempt(ctx context.Context) (attempt int, err error) {
	for {
		n := l.attempt.Load() + 1
		l.proposeAttempt(n)
		if err := l.awaitAck(ctx); err != nil {
			return 0, fmt.Errorf("begin attempt %d under a lease of %q: %w", n, l.lockName(), err)
		}
		if l.attempt.CompareAndSwap(n-1, n) { // if the swap fails, another caller has this number
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

// awaitAck repeats sendAttempt until Redis has acknowledged the proposed attempt, or ctx or the lease ends. A request that is still under way when
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

// sendAttempt records the proposed attempt on Redis and on enough Redis replicas, which can take long, and renews the lease. Without the renewal, the lease
// might end soon after the new attempt begins, and stop it.
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

// goesOutAgain records that a renewal is being sent, like goesOut. It returns false if the lease has ended or is being released; then the renewal
// must not be sent. The release of a lease that was never renewed may leave no tombstone in Redis, so a late renewal would restore the lease.
func (l *Lease) goesOutAgain() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.giving || l.ctx.Err() != nil {
		return false
	}
	l.renewed = true
	return true
}

func (l run) ReleaseWith(ctx context.Context, well bool) error {
	if l.row.Grant.Tick == 0 {
		return l.Release(ctx)
	}
	outcome := lease.OutcomeFailed
	if well {
		outcome = lease.OutcomeSucceeded
	}
	return l.releaseAs(ctx, lease.ReleaseRequest{Outcome: outcome})
}

func (l run) MarkSucceeded(ctx context.Context, followed bool) error {
	return l.client.store.MarkSucceeded(ctx, &l.row, followed)
}

func (l run) Undo(ctx context.Context) error {
	return l.releaseAs(ctx, lease.ReleaseRequest{Mode: lease.ReleaseUndo})
}

func (l run) HandOver(ctx context.Context, attempt int) error {
	attempt = max(int(l.row.Grant.Attempt), min(attempt, l.Attempt()))
	if err := l.releaseAs(ctx, lease.ReleaseRequest{Mode: lease.ReleaseHandOver, Attempt: attempt}); err != nil {
		return err
	}
	if now, known := l.client.store.Estimate(l.client.cfg.Clock()); known && l.row.Grant.Tick > 0 {
		l.mu.Lock()
		l.leftAt = now
		l.mu.Unlock()
		_ = l.client.requests.Publish(ctx, []lease.Run{l}, nil) // if the event is lost, other clients look for the orphan only when the lease would have expired
	}
	return nil
}

func (l run) Stopping() <-chan struct{} { return l.stopping.doneChannel() }

func (l run) StopReason() string {
	if !l.stopping.isSet() {
		return ""
	}
	return l.stopReason
}

// askToStop sets the stopping signal with a reason. It does nothing if the signal is set already, or if the reason is "".
func (l *Lease) askToStop(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if reason == "" || l.stopping.isSet() {
		return
	}
	l.stopReason = reason
	l.stopping.setOnce()
}

func (k *keeper) askToStop(id, reason string) {
	if l := k.liveLease(id); l != nil {
		l.askToStop(reason)
	}
}

func (l run) GrantedRow() lease.GrantedRow {
	p := lease.GrantedRow{Row: &l.row, Until: l.row.Grant.Expiry}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.givenBack:
		p.Until = l.row.Grant.Now
	case l.leftAt > 0:
		p.Until = l.leftAt
	}
	return p
}

func (l run) Join(other lease.Run) lease.Span { return LeaseSetOf(l.Lease, leaseOf(other)) }

// leaseOf returns the lease of a run, or nil if there is no run.
func leaseOf(r lease.Run) *Lease {
	if r, ok := r.(run); ok {
		return r.Lease
	}
	return nil
}
