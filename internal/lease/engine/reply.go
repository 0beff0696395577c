package engine

import (
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/observed"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// reply is a script's answer: the common part is taken in already, rest is the script's own.
type reply struct {
	verdict string
	orphans int
	now     int64 // the server's clock
	floor   int64
	longest int64
	low     int64
	ledger  string
	paused  string
	transport.Values
	sent     time.Duration // local clock, before the request was sent
	received time.Duration // and when its caller could have the reply, after all calls that it travelled with and waited for
	acked    bool          // as many replicas have it as must
	err      error         // the outcome is unknown

	compact bool     // the lock is: see acquire_compact.lua
	fold    *compact // and what it is with the grant

	place int     // of a set of locks: which one refused, from 1
	parts []reply // and the replies of its locks

	narrow  bool // no more than a majority of a quorum was asked: the ticket is narrow
	partial bool // not all nodes of a quorum may have it
}

// common is the number of values with which every reply begins.
const common = 7

// readOne takes in the reply to a call.
func (c *single) readOne(k call, told *clock.Server, raw []any, err error, sent, received time.Duration) reply {
	if err != nil && transport.IsReply(err) && lease.WrongType(err) {
		err = fmt.Errorf("key %q, or one that begins with it, is of something else: delete that, or take another prefix, namespace or database: %w", k.keys[0], err)
	}
	switch {
	case len(k.parts) > 0:
		return c.readSeveral(told, raw, err, sent, received)
	case err == nil && k.script.Many != nil:
		r := k.read(k, raw)
		if r.sent, r.received = sent, received; r.now > 0 {
			told.Observe(r.now, sent, received)
		}
		return r
	}
	return c.read(told, raw, err, sent, received)
}

// readSeveral takes in the reply for a set of locks: a verdict, a place, and replies of single locks.
func (c *single) readSeveral(told *clock.Server, raw []any, err error, sent, received time.Duration) reply {
	switch {
	case err != nil:
		return reply{err: transport.Unknown(err)}
	case len(raw) == 0:
		return reply{err: fmt.Errorf("%w: an empty reply from the server", ErrUnknown)}
	case len(raw) == 1:
		return reply{verdict: transport.Text(raw[0])}
	}
	r := reply{verdict: transport.Text(raw[0]), place: int(min(max(transport.Number(raw[1]), 0), mostTogether*lease.MaxSlots)), sent: sent}
	for _, part := range raw[2:] {
		values, _ := part.([]any)
		r.parts = append(r.parts, c.read(told, values, nil, sent, received))
	}
	return r
}

// read takes in the server's clock from a reply.
func (c *single) read(told *clock.Server, raw []any, err error, sent, received time.Duration) reply {
	if err != nil {
		return reply{err: transport.Unknown(err)}
	}
	if len(raw) < common {
		return reply{err: fmt.Errorf("%w: a reply of %d values from the server", ErrUnknown, len(raw))}
	}
	for i, v := range raw[:common] {
		_, isText := v.(string)
		if _, isNumber := v.(int64); isText != (i == 0 || i == 5) || isText == isNumber {
			return reply{err: fmt.Errorf("%w: %w: a reply from the server with %T as value %d", ErrUnknown, ErrCorrupt, v, i)}
		}
	}
	r := reply{verdict: transport.Text(raw[0]), now: transport.Number(raw[1]), floor: transport.Number(raw[2]), longest: transport.Number(raw[3]), low: transport.Number(raw[4]),
		orphans: int(transport.Number(raw[6])), Values: raw[common:], sent: sent, received: received}
	r.paused, r.ledger = lease.CutPause(transport.Text(raw[5]))
	if fault := r.fault(); fault != "" {
		return reply{err: fmt.Errorf("%w: %w: a reply from the server: %s", ErrUnknown, ErrCorrupt, fault)}
	}
	r.compact = r.verdict == "released" && r.Text(0) == "folded"
	told.Observe(r.now, sent, received)
	return r
}

// learn remembers the lock's state from a reply, unless a failover may undo it. A client that announced to the
// new master a grant that it never had, and that was never used, would take the tick from all replicas.
func (c *single) learn(k call, r reply) {
	if len(k.parts) > 0 {
		c.learnSeveral(k, r)
		return
	}
	if r.err != nil || !r.acked || r.verdict == "late" || r.verdict == "dead" || r.now == 0 { // the last three did not look at the lock, or say nothing of it
		return
	}
	news := observed.State{Compact: r.compact || r.fold != nil, Floor: r.floor, Longest: r.longest, Low: r.low, Ledger: r.ledger, Paused: r.paused, Seen: r.sent, Permanent: k.idle == 0}
	c.seen.Learn(k.lock, news, c.cfg.Idle, r.now, r.inUse())
}

// learnSeveral learns of each lock of a set: see acquire_set.lua for which reply is whose.
func (c *single) learnSeveral(k call, r reply) {
	parts := r.parts
	if r.verdict == "refused" && len(parts) > 0 && r.place >= 1 && r.place <= len(k.parts) {
		refusal := parts[0]
		refusal.acked = r.acked
		c.learn(k.parts[r.place-1], refusal)
		parts = parts[1:]
	}
	for i := range min(len(parts), len(k.parts)) {
		parts[i].acked = r.acked
		c.learn(k.parts[i], parts[i])
	}
}

// inUse reports whether the lock was used about now, so that the server keeps it for a while.
func (r reply) inUse() bool {
	switch r.verdict {
	case "granted", "renewed", "released", "closed", "settled", "queued", "passed", "stale", "paused":
		return true
	case "held":
		return r.Number(0) > 0
	}
	return false
}

// row is the granted row in a reply.
type row struct{ slot, token, expiry, tick, attempt int64 }

func (r reply) row() row {
	if r.fold != nil {
		return row{token: r.now, expiry: r.now + r.fold.lease, attempt: 1}
	}
	return row{r.Number(0), r.Number(1), r.Number(2), r.Number(3), r.Number(4)}
}
