package engine

import (
	"context"
	"fmt"

	"github.com/cronclave/cronclave/internal/lease"
)

// Publish publishes grants of leases with a tick to all clients that [Client.Subscribe], so that they need not ask, and releases of other leases, so
// that waiters need not ask often. A lost event costs only a request, or a pause. Publish waits for an answer for at most [Config.Timeout]. On a
// quorum nothing is published.
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

// grantEvent returns the event about a lease: it was granted, it was given back, or its run was left to a recovery.
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

// Subscribe calls f with events, and records their content in this client's observed state, until ctx ends. Meanwhile messages of [Client.Stop] reach
// the client's leases at once. While the server is away, or forbids the subscription (see [Config.OnForbidden]), it tries again with growing pauses.
// f is called from one goroutine.
func (c *Client) Subscribe(ctx context.Context, f func([]GrantEvent)) {
	if p, ok := c.store.(eventPublisher); ok {
		p.Subscribe(ctx, f)
		return
	}
	<-ctx.Done()
}
