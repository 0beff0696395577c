package single

import (
	"time"

	"github.com/cronclave/cronclave/internal/lease"
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
	form    *compact // and what it is with the grant

	place int     // of a set of locks: which one refused, from 1
	parts []reply // and the replies of its locks
}

// known is what the reply says of the lock.
func (r *reply) known() lease.Known {
	return lease.Known{Floor: r.floor, Longest: r.longest, Low: r.low, Ledger: lease.JoinPause(r.paused, r.ledger)}
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
	if r.form != nil {
		return row{token: r.now, expiry: r.now + r.form.lease, attempt: 1}
	}
	return row{r.Number(0), r.Number(1), r.Number(2), r.Number(3), r.Number(4)}
}
