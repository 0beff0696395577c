package engine

import (
	"context"
	"fmt"

	"github.com/cronclave/cronclave/internal/lease"
)

// Publish sends events to all clients that called [Client.Subscribe]: the grants of leases with a tick, so that other clients need not request the
// tick, and the releases of ended, so that waiters poll less often. A lost event costs one request or one pause between requests. Publish waits for
// an answer for at most [Config.Timeout]. On a quorum it does nothing.
func (c *Client) Publish(ctx context.Context, leases, ended []*Lease) error {
	p, ok := c.store.(eventPublisher)
	if !ok {
		return nil
	}
	granted, released := make([]lease.GrantedRow, len(leases)), make([]string, len(ended))
	for i, l := range leases {
		granted[i] = l.grantEvent()
	}
	for i, l := range ended {
		released[i] = l.lockName()
	}
	if err := p.Publish(ctx, granted, released); err != nil {
		return fmt.Errorf("publish grants: %w", err)
	}
	return nil
}

// grantEvent returns the event about a lease. Its Until shows whether the lease is held, was given back, or was handed over to a recovery.
func (l *Lease) grantEvent() lease.GrantedRow {
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

// Subscribe calls f with events until ctx ends, and records them in this client's observed state. While subscribed, the client receives the messages
// of [Client.Stop] at once. If Redis is unreachable or forbids the subscription (see [Config.OnForbidden]), Subscribe retries with growing pauses. f
// is called from one goroutine.
func (c *Client) Subscribe(ctx context.Context, f func([]GrantEvent)) {
	if p, ok := c.store.(eventPublisher); ok {
		p.Subscribe(ctx, f)
		return
	}
	<-ctx.Done()
}
