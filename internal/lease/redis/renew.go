package redis

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/script"
)

// Renew renews leases in one round trip to each server.
func (c *Store) Renew(ctx context.Context, batch []lease.Renewal) []lease.Renewed {
	calls := make([]call, len(batch))
	for i, l := range batch {
		calls[i] = c.renewCall(l)
	}
	renewed := make([]lease.Renewed, len(batch))
	for i, got := range c.sendCalls(ctx, calls) {
		renewed[i] = c.renewedOf(got, batch[i].Row.Request.Lease)
	}
	return renewed
}

// renewCall returns the call for a renewal.
func (c *Store) renewCall(l lease.Renewal) call {
	r, g := &l.Row.Request, &l.Row.Grant
	return c.newCall(c.scripts.Renew, r.Lock, r.ID, r.Permanent, script.RenewArgs{
		Owner: c.cfg.Owner, Slot: g.Slot, Lease: r.Lease, Trigger: r.Trigger, Memo: r.Memo, Token: g.Token, Tick: g.Tick,
		Attempt: l.Attempt, Delay: r.Delay, Slots: r.Slots, Orphan: r.Adopt}.Encode()...)
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
