package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/cronclave/cronclave/internal/lease"
)

// Stop asks holders to stop, in one round trip for all, and returns an answer for each request, in order. A
// holder that [Client.Subscribe]s gets a message at once. Without that, or where the message gets lost, the reply to
// its next renewal carries the request, as it always does on a quorum. The lease is renewed until its holder
// releases it. A server that loses its memory before the holder knows has forgotten the request, too: ask again
// while the lease is held.
func (c *Client) Stop(ctx context.Context, requests []StopRequest) []StopAnswer {
	check := func(r StopRequest) error { return errors.Join(r.Validate(), lease.CheckName(r.Lock), c.work.Ready()) }
	refuse := func(r StopRequest, err error) StopAnswer {
		return StopAnswer{Err: fmt.Errorf("stop a holder of %q: %w", r.Lock, err)}
	}
	return askValid(requests, check, refuse, func(valid []StopRequest) []StopAnswer { return c.store.Stop(ctx, valid) })
}

// Stopping is closed when the holder is asked to stop: see [Client.Stop]. It is up to the holder to do so, in its own time: the lease is
// renewed until it is released.
func (l Run) Stopping() <-chan struct{} { return l.stopping.look() }

// StopReason returns the reason why the holder is asked to stop; "" if it is not.
func (l Run) StopReason() string {
	if !l.stopping.isLit() {
		return ""
	}
	return l.stopReason
}

// askToStop passes the word on. The first reason is the one; "" is none.
func (l *Lease) askToStop(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if reason == "" || l.stopping.isLit() {
		return
	}
	l.stopReason = reason
	l.stopping.light()
}

// askToStop notifies the holder of a lease id, if it is one of this client.
func (k *keeper) askToStop(id, reason string) {
	if l := k.live(id); l != nil {
		l.askToStop(reason)
	}
}
