package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/cronclave/cronclave/internal/lease"
)

// Stop asks holders to stop, in one round trip for all, and returns an answer for each request, in order. A holder that [Client.Subscribe]s gets a
// message at once. Otherwise, or if the message is lost, the reply to its next renewal has the request, as always on a quorum. The lease is renewed
// until its holder releases it. A server that loses its memory before the holder has the request has forgotten it, too: ask again while the lease is
// held.
func (c *Client) Stop(ctx context.Context, requests []StopRequest) []StopAnswer {
	check := func(r StopRequest) error { return errors.Join(r.Validate(), lease.CheckName(r.Lock), c.work.Ready()) }
	refuse := func(r StopRequest, err error) StopAnswer {
		return StopAnswer{Err: fmt.Errorf("stop a holder of %q: %w", r.Lock, err)}
	}
	return askValid(requests, check, refuse, func(valid []StopRequest) []StopAnswer { return c.store.Stop(ctx, valid) })
}

// Stopping returns a channel that is closed when the holder is asked to stop: see [Client.Stop]. The holder decides when it does: the lease is
// renewed until it is released.
func (l Run) Stopping() <-chan struct{} { return l.stopping.doneChannel() }

// StopReason returns the reason for which the holder is asked to stop, or "" if it is not.
func (l Run) StopReason() string {
	if !l.stopping.isSet() {
		return ""
	}
	return l.stopReason
}

// askToStop passes a request to stop to the holder. Only the first reason counts; "" is no request.
func (l *Lease) askToStop(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if reason == "" || l.stopping.isSet() {
		return
	}
	l.stopReason = reason
	l.stopping.setOnce()
}

// askToStop passes a request to stop to the lease with an id, if this client holds it.
func (k *keeper) askToStop(id, reason string) {
	if l := k.liveLease(id); l != nil {
		l.askToStop(reason)
	}
}
