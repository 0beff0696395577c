package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/script"
)

// Stop asks holders to stop, in one round trip for all, and returns an answer for each request, in order. A
// holder that [Client.Subscribe]s gets a message at once. Without that, or where the message gets lost, the reply to
// its next renewal carries the request, as it always does on a quorum. The lease is renewed until its holder
// releases it. A server that loses its memory before the holder knows has forgotten the request, too: ask again
// while the lease is held.
func (c *Client) Stop(ctx context.Context, requests []StopRequest) []StopAnswer {
	answers := make([]StopAnswer, len(requests))
	var valid []int
	for i, r := range requests {
		if err := errors.Join(r.Validate(), lease.CheckName(r.Lock), c.ready()); err != nil {
			answers[i].Err = fmt.Errorf("stop a holder of %q: %w", r.Lock, err)
			continue
		}
		valid = append(valid, i)
	}
	c.store.stop(ctx, requests, answers, valid)
	return answers
}

func (c *single) stop(ctx context.Context, requests []StopRequest, answers []StopAnswer, valid []int) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	calls := make([]call, len(valid))
	for n, i := range valid {
		r := requests[i]
		calls[n] = c.call(c.scripts.Stop, r.Lock, r.ID, r.Permanent, script.StopArgs{StopRequest: r, Channel: c.channel()}.Encode()...)
	}
	for n, got := range c.exec(ctx, calls) {
		switch {
		case got.verdict == "told":
			answers[valid[n]] = StopAnswer{ID: got.Text(0), Owner: got.Text(1), Slot: int(got.Number(2))}
		case got.verdict != "gone":
			answers[valid[n]].Err = fmt.Errorf("stop a holder of %q: %w", requests[valid[n]].Lock, cmp.Or(got.err, ErrUnknown))
		}
	}
}

// parseStop reads the message of lua/stop.lua.
func parseStop(line string) (id, reason string, ok bool) {
	rest, ok := strings.CutPrefix(line, "stop\t")
	if !ok {
		return "", "", false
	}
	id, reason, ok = strings.Cut(rest, "\t")
	return id, reason, ok && id != "" && reason != "" && lease.OneLine(reason, lease.MaxHeard)
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
