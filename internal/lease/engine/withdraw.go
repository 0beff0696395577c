package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// Withdraw undoes the grant that a request with an unknown outcome may have got, and reopens its tick. It returns at once, and retries in the
// background until Redis has answered or the lease must have expired. [Client.Close] waits until Withdraw has tried for twice [Config.Timeout], and
// lets it try for at least one Timeout after the call of Close. On a closed client, Withdraw tries for up to [Config.Timeout] before it returns.
func (c *Client) Withdraw(r Request, id string) {
	r.ID = id
	c.withdrawRequest(r.WithDefaults())
}

// AwaitWithdrawal withdraws a request whose answer never arrived, and waits for the result. Its work must not have begun. Afterwards the lease id
// can't be granted any more, and the tick is open again unless the run was adopted or abandoned. It returns when Redis has answered and enough
// replicas have the write, or when ctx ends.
func (c *Client) AwaitWithdrawal(ctx context.Context, r Request) error {
	w := lease.Withdrawal(r.WithDefaults())
	w.Acked = true
	if _, err := c.store.Release(ctx, w); err != nil {
		return fmt.Errorf("withdraw a request for %q: %w", r.Lock, err)
	}
	return nil
}

// mostGivenUp bounds the releases under way in the background. More can accumulate only if Redis is unreachable, which has then granted few of these
// requests. Leases that are not released expire.
const mostGivenUp = 10_000

// giveUp continues a release in the background, until Redis has answered or the lease must have expired. It returns false if the client is closed.
func (c *Client) giveUp(r lease.ReleaseRequest) bool {
	row := *r.Row // a copy, so that the lease can be freed
	r.Row = &row
	return c.work.Go(func() {
		defer c.givenUp.Add(-1)
		if c.givenUp.Add(1) > mostGivenUp {
			return
		}
		begun := c.cfg.Clock()
		ctx, cancel := context.WithTimeout(c.work.Life(), r.Row.Request.Lease+c.cfg.Timeout)
		defer cancel()
		if _, err := c.store.Release(ctx, r); err == nil || !c.work.Over() {
			return
		}
		c.tryLast(r, max(begun+2*c.cfg.Timeout, c.work.EndedAt()+c.cfg.Timeout))
	})
}

// tryLast tries to release while the client closes or after it has closed, until the local instant end.
func (c *Client) tryLast(r lease.ReleaseRequest, end time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), end-c.cfg.Clock())
	defer cancel()
	_, _ = c.store.Release(ctx, r)
}

// withdrawRequest undoes the grant that a request may have got. It works in the background, or before it returns if the client is closed. The caller
// must not repeat the request.
func (c *Client) withdrawRequest(r Request) {
	if !c.giveUp(lease.Withdrawal(r)) {
		c.tryLast(lease.Withdrawal(r), c.cfg.Clock()+c.cfg.Timeout)
	}
}
