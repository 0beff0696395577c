package redis

import (
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// common is the number of values with which every reply begins.
const common = 7

// readOne decodes the reply to a call.
func readOne(k call, server *clock.Server, raw []any, err error, sent, received time.Duration) reply {
	if err != nil && transport.IsReply(err) && lease.WrongType(err) {
		err = fmt.Errorf("key %q, or one that begins with it, is of something else: delete that, or take another prefix, namespace or database: %w", k.keys[0], err)
	}
	switch {
	case len(k.parts) > 0:
		return readSetReply(server, raw, err, sent, received)
	case err == nil && k.script.Many != nil:
		r := k.read(k, raw)
		if r.sent, r.received = sent, received; r.now > 0 {
			server.Observe(r.now, sent, received)
		}
		return r
	}
	return readReply(server, raw, err, sent, received)
}

// readSetReply decodes the reply for a set of locks: a verdict, an index, and replies for single locks.
func readSetReply(server *clock.Server, raw []any, err error, sent, received time.Duration) reply {
	switch {
	case err != nil:
		return reply{err: transport.Unknown(err)}
	case len(raw) == 0:
		return reply{err: fmt.Errorf("%w: an empty reply from the server", lease.ErrUnknown)}
	case len(raw) == 1:
		return reply{verdict: transport.Text(raw[0])}
	}
	r := reply{verdict: transport.Text(raw[0]), place: int(min(max(transport.Number(raw[1]), 0), mostTogether*lease.MaxSlots)), sent: sent}
	for _, part := range raw[2:] {
		values, _ := part.([]any)
		r.parts = append(r.parts, readReply(server, values, nil, sent, received))
	}
	return r
}

// readReply decodes the reply for one lock, and records Redis's time.
func readReply(server *clock.Server, raw []any, err error, sent, received time.Duration) reply {
	if err != nil {
		return reply{err: transport.Unknown(err)}
	}
	if len(raw) < common {
		return reply{err: fmt.Errorf("%w: a reply of %d values from the server", lease.ErrUnknown, len(raw))}
	}
	for i, v := range raw[:common] {
		_, isText := v.(string)
		if _, isNumber := v.(int64); isText != (i == 0 || i == 5) || isText == isNumber {
			return reply{err: fmt.Errorf("%w: %w: a reply from the server with %T as value %d", lease.ErrUnknown, lease.ErrCorrupt, v, i)}
		}
	}
	r := reply{verdict: transport.Text(raw[0]), now: transport.Number(raw[1]), floor: transport.Number(raw[2]), longest: transport.Number(raw[3]), low: transport.Number(raw[4]),
		orphans: int(transport.Number(raw[6])), Values: raw[common:], sent: sent, received: received}
	r.paused, r.ledger = lease.CutPause(transport.Text(raw[5]))
	if fault := r.findFault(); fault != "" {
		return reply{err: fmt.Errorf("%w: %w: a reply from the server: %s", lease.ErrUnknown, lease.ErrCorrupt, fault)}
	}
	r.compact = r.verdict == "released" && r.Text(0) == "compact"
	server.Observe(r.now, sent, received)
	return r
}
