package engine

import (
	"context"
	"fmt"

	"github.com/cronclave/cronclave/internal/lease"
)

// Publish publishes the grants of leases with a tick to all clients that [Client.Subscribe], so that they need not ask,
// and the releases of others, so that waiters need not ask often. An event that gets lost costs a request, or a
// pause, and nothing else; no answer is waited for longer than [Config.Timeout]. On a quorum nothing is
// published.
func (c *Client) Publish(ctx context.Context, leases, ended []*Lease) error {
	p, ok := c.store.(eventPublisher)
	if !ok {
		return nil
	}
	granted, released := make([]lease.GrantedRow, len(leases)), make([]string, len(ended))
	for i, l := range leases {
		granted[i] = l.published()
	}
	for i, l := range ended {
		released[i] = l.lock()
	}
	if err := p.Publish(ctx, granted, released); err != nil {
		return fmt.Errorf("publish grants: %w", err)
	}
	return nil
}

// published is the event about a lease: its grant, or that it was given back, or that its run was left to a
// recovery.
func (l *Lease) published() lease.GrantedRow {
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

// Subscribe calls f with events, and keeps their content as this client's observed state, until ctx ends. Messages
// of [Client.Stop] reach the client's leases at once meanwhile. While the server is away, or forbids it (see
// [Config.OnForbidden]), it tries again and again, with growing pauses. f is called from one goroutine.
func (c *Client) Subscribe(ctx context.Context, f func([]GrantEvent)) {
	if p, ok := c.store.(eventPublisher); ok {
		p.Subscribe(ctx, f)
		return
	}
	<-ctx.Done()
}
