package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/cronclave/cronclave/internal/lease"
)

// Stop asks holders to stop, in one round trip, and returns an answer for each request, in order. A holder whose client called [Client.Subscribe]
// gets a message at once. Otherwise, if the message is lost, or on a quorum, the holder gets the request with the reply to its next renewal. The
// lease is renewed until its holder releases it. If Redis loses its data before the holder has got the request, the request is lost: repeat Stop
// while the lease is held.
func (c *Client) Stop(ctx context.Context, requests []StopRequest) []StopAnswer {
	check := func(r StopRequest) error { return errors.Join(r.Validate(), lease.CheckName(r.Lock), c.work.Ready()) }
	refuse := func(r StopRequest, err error) StopAnswer {
		return StopAnswer{Err: fmt.Errorf("stop a holder of %q: %w", r.Lock, err)}
	}
	return askValid(requests, check, refuse, func(valid []StopRequest) []StopAnswer { return c.store.Stop(ctx, valid) })
}

// Stopping returns a channel that is closed when the holder is asked to stop: see [Client.Stop]. The holder decides when it stops. The lease is
// renewed until the holder releases it.
func (l Run) Stopping() <-chan struct{} { return l.stopping.doneChannel() }

// StopReason returns the reason why the holder is asked to stop; "" if nobody asked.
func (l Run) StopReason() string {
	if !l.stopping.isSet() {
		return ""
	}
	return l.stopReason
}

// askToStop sets the stopping signal with a reason. It ignores later reasons, and the reason "".
func (l *Lease) askToStop(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if reason == "" || l.stopping.isSet() {
		return
	}
	l.stopReason = reason
	l.stopping.setOnce()
}

// askToStop calls [Lease.askToStop] for the lease with an id, if this client holds it.
func (k *keeper) askToStop(id, reason string) {
	if l := k.liveLease(id); l != nil {
		l.askToStop(reason)
	}
}
