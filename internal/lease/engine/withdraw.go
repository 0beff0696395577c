package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// Withdraw gives back what a request with an unknown outcome may have been granted: its tick is open again. It returns at once, and tries in the
// background until the server has answered or the lease must have ended. [Client.Close] waits until it has been tried for twice [Config.Timeout], or
// once more if it has been already. After Close, Withdraw itself tries for up to [Config.Timeout], and then returns.
func (c *Client) Withdraw(r Request, id string) {
	r.ID = id
	c.withdrawRequest(r.WithDefaults())
}

// AwaitWithdrawal withdraws for good a request whose answer never arrived. From then on its id is dead, and its tick is open again unless it was
// adopted or abandoned. It returns when the server has answered and enough replicas have the write, or when ctx ends. The work must not have begun.
func (c *Client) AwaitWithdrawal(ctx context.Context, r Request) error {
	w := lease.Withdrawal(r.WithDefaults())
	w.Acked = true
	if _, err := c.store.Release(ctx, w); err != nil {
		return fmt.Errorf("withdraw a request for %q: %w", r.Lock, err)
	}
	return nil
}

// mostGivenUp bounds the releases that are tried in the background. A server that is away can't have granted what more of them would give back. If it
// has, the leases run out by themselves.
const mostGivenUp = 10_000

// giveUp goes on with a release in the background, until the server has answered or the lease must have ended. It returns false if the client is
// closed.
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

// tryLast releases while the client closes, or after it has, until an instant of the local clock.
func (c *Client) tryLast(r lease.ReleaseRequest, end time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), end-c.cfg.Clock())
	defer cancel()
	_, _ = c.store.Release(ctx, r)
}

// withdrawRequest takes back what a request has been or may be granted, after which nothing more will be asked about it. It does so in the background, but at
// once if the client is closed.
func (c *Client) withdrawRequest(r Request) {
	if !c.giveUp(lease.Withdrawal(r)) {
		c.tryLast(lease.Withdrawal(r), c.cfg.Clock()+c.cfg.Timeout)
	}
}
