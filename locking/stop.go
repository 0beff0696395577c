package locking

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// StopRequest asks the holder of a lease to stop its work, see [Lease.Stopping]: the one of ID, or, without an ID, one that is to make room for a tick.
type StopRequest struct {
	Lock      string
	Permanent bool // as in [Request]
	ID        string
	Reason    string // one line of at most 1,000 bytes without tabs; required
	// Tick and From, as in [Tick.At] and [Tick.NotBefore], and Slots: if the tick is undecided and all slots are held, the lease is the oldest
	// of those that were granted before From, or that have adopted an orphan of an earlier tick. One lease is chosen for a tick at a time, whoever asks and however often: if it has not
	// ended by then, the same again. One that is about to stop anyway, and not for another tick, is as good.
	Tick, From time.Time
	Slots      int
}

func (r StopRequest) validate() error {
	switch {
	case r.Reason == "" || !oneLine(r.Reason, longestHeard):
		return fmt.Errorf("reason %.100q: it must be one line of at most %d bytes, without tabs", r.Reason, longestHeard)
	case strings.ContainsAny(r.ID, "\t\n"):
		return fmt.Errorf("lease id %q: it has a tab or a line break", r.ID)
	case r.ID == "" && (r.Tick.Unix() <= 0 || r.Slots < 1):
		return errors.New("neither a lease id, nor a tick and the number of slots")
	}
	return nil
}

// Told is the answer to a [StopRequest].
type Told struct {
	ID    string // the lease whose holder is told to stop; "" if there is none: it has ended, or the tick needs none
	Owner string
	Slot  int
	Err   error // [ErrUnknown]: it may be marked, or not; ask again
}

// Stop asks holders to stop, in one round trip for all, and returns an answer for each request, in order. A holder that [Client.Hear]s is told at once;
// else, and where that message gets lost, its next renewal tells it, and that is what happens on a quorum. The lease is renewed until its holder
// releases it. A server that loses its memory before the holder knows has forgotten the request, too: ask again while the lease is held.
func (c *Client) Stop(ctx context.Context, requests []StopRequest) []Told {
	answers := make([]Told, len(requests))
	var calls []call
	var valid []int
	for i, r := range requests {
		if err := errors.Join(r.validate(), checkName(r.Lock), c.ready()); err != nil {
			answers[i].Err = fmt.Errorf("stop a holder of %q: %w", r.Lock, err)
			continue
		}
		valid = append(valid, i)
		if c.quorum == nil {
			calls = append(calls, c.call(c.scripts.stop, r.Lock, r.ID, r.Permanent, r.Reason, c.channel(), r.Slots, max(r.Tick.Unix(), 0), toMicros(r.From)))
		}
	}
	if c.quorum != nil {
		c.quorum.stop(ctx, requests, answers, valid)
		return answers
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	for n, got := range c.exec(ctx, calls) {
		switch {
		case got.verdict == "told":
			answers[valid[n]] = Told{ID: got.text(0), Owner: got.text(1), Slot: int(got.number(2))}
		case got.verdict != "gone":
			answers[valid[n]].Err = fmt.Errorf("stop a holder of %q: %w", requests[valid[n]].Lock, orDefault(got.err, ErrUnknown))
		}
	}
	return answers
}

// parseStop reads the message of lua/stop.lua.
func parseStop(line string) (id, reason string, ok bool) {
	rest, ok := strings.CutPrefix(line, "stop\t")
	if !ok {
		return "", "", false
	}
	id, reason, ok = strings.Cut(rest, "\t")
	return id, reason, ok && id != "" && reason != "" && oneLine(reason, longestHeard)
}

// Stopping is closed when somebody asks the holder to stop: see [Client.Stop]. It is up to the holder to do so, in its own time: the lease is
// renewed until it is released.
func (l *Lease) Stopping() <-chan struct{} { return l.stopping.look() }

// StopReason tells why the holder is asked to stop; "" if it is not.
func (l *Lease) StopReason() string {
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

// askToStop tells the holder of a lease id, if it is one of this client.
func (k *keeper) askToStop(id, reason string) {
	if l := k.live(id); l != nil {
		l.askToStop(reason)
	}
}
