package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// Renew renews leases in one round trip to each server.
func (c *Store) Renew(ctx context.Context, batch []lease.Renewal) []lease.Renewed {
	calls := make([]call, len(batch))
	for i := range batch {
		r := &batch[i].Row.Request
		calls[i] = c.newCall(c.scripts.Renew, r.Lock, r.ID, r.Permanent, renewParams.encode(&batch[i], c.cfg.Owner)...)
	}
	renewed := make([]lease.Renewed, len(batch))
	for i, got := range c.sendCalls(ctx, calls) {
		renewed[i] = c.renewedOf(got, batch[i].Row.Request.Lease)
	}
	return renewed
}

func (c *Store) renewedOf(got reply, length time.Duration) lease.Renewed {
	switch {
	case got.err == nil && !got.acked: // a failover may undo the renewal, so the holder keeps the earlier deadline
		return lease.Renewed{Err: c.unackedError()}
	case got.verdict == "renewed":
		return lease.Renewed{Done: true, Left: time.Duration(got.Number(0)-got.now) * time.Microsecond, Stop: got.Text(2), Sent: got.sent, Next: c.RenewAfter(length)}
	case got.verdict == "lost":
		return lease.Renewed{Lost: true, Why: lostWhy(got)}
	}
	return lease.Renewed{Err: got.err}
}

func lostWhy(got reply) string {
	if by := got.Text(1); by != "" {
		return got.Text(0) + ", now held by " + by
	}
	return got.Text(0)
}

func (c *Store) releaseCall(r lease.ReleaseRequest) call {
	row := &r.Row.Request
	k := c.newCall(c.scripts.Release, row.Lock, row.ID, row.Permanent, releaseParams.encode(&r, TombstoneLife(c.cfg.Timeout))...)
	if r.Acked && c.cfg.AckedReplicas > 0 {
		k.sync, k.args[syncArg] = true, syncOn // the reply counts only if enough Redis replicas acknowledge the write
	}
	return k
}

// ReleaseSoon ends a lease. It uses the short script for compact locks if the lease was not renewed and the lock is still compact.
func (c *Store) ReleaseSoon(ctx context.Context, r lease.ReleaseRequest, begun time.Duration) (answer lease.Released, err error) {
	if form, ok := r.Row.Grant.Ticket.(*compact); ok && r.Fresh && r.Held && r.Mode == lease.ReleaseEnd {
		verdict, err := c.releaseCompact(ctx, r, form, begun)
		if err == nil && verdict != notCompact {
			return lease.Released(verdict), nil
		}
		if err != nil { // the outcome is unknown, and the short script leaves no tombstone that would prove the release
			r.Doubt = true
			return c.releaseUntil(ctx, r, begun)
		}
	}
	// The first try usually succeeds, so it does not need the timer of releaseUntil.
	if answer, err = c.releaseOnce(ctx, r); err == nil {
		return r.Sure(answer), nil
	}
	return c.releaseUntil(ctx, r, begun)
}

// releaseUntil is Release for at most two timeouts of a round trip, counted from begun.
func (c *Store) releaseUntil(ctx context.Context, r lease.ReleaseRequest, begun time.Duration) (answer lease.Released, err error) {
	ctx, cancel := context.WithTimeout(ctx, begun+2*c.cfg.Timeout-c.cfg.Clock())
	defer cancel()
	answer, err = c.Release(ctx, r)
	return r.Sure(answer), err
}

func (c *Store) releaseOnce(ctx context.Context, r lease.ReleaseRequest) (lease.Released, error) {
	got := c.execCalls(ctx, []call{c.releaseCall(r)})[0]
	if r.Acked && got.err == nil && !got.acked {
		return "", c.unackedError()
	}
	return lease.Released(got.verdict), got.err
}

// Release ends a lease. It retries until ctx ends.
func (c *Store) Release(ctx context.Context, r lease.ReleaseRequest) (answer lease.Released, err error) {
	for retry := lease.NewRetry(c.cfg.Timeout); ; {
		if answer, err = c.releaseOnce(ctx, r); err == nil || errors.Is(err, lease.ErrRefused) {
			return answer, err
		}
		if !retry.Wait(ctx) {
			return "", fmt.Errorf("%w (%w)", err, ctx.Err())
		}
	}
}

// MarkSucceeded records that the work of a lease has succeeded.
func (c *Store) MarkSucceeded(ctx context.Context, row *lease.HeldRow, followed bool) error {
	r := &row.Request
	got := c.execCalls(ctx, []call{c.newCall(c.scripts.MarkSucceeded, r.Lock, r.ID, r.Permanent,
		markSucceededParams.encode(r, flag(followed))...)})[0]
	switch {
	case got.verdict == "noted":
		return nil
	case got.verdict == "late":
		got.err = fmt.Errorf("%w: the request reached the server too late", lease.ErrUnknown)
	}
	return fmt.Errorf("mark the work under a lease of %q as succeeded: %w", r.Lock, cmp.Or(got.err, lease.ErrLost))
}
