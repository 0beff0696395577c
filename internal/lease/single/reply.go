package single

import (
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// A reply is the decoded answer of a script. Values has the values after the common ones.
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
	sent     time.Duration // the local clock before the request was sent
	received time.Duration // the local clock when its caller could have the reply, after all calls that it travelled with and waited for
	acked    bool          // enough replicas have the write
	err      error         // the outcome is unknown

	compact bool     // the lock is compact: see acquire_compact.lua
	form    *compact // its form with the grant

	place int     // for a set of locks: the number of the lock that refused, from 1
	parts []reply // for a set of locks: the replies for its locks
}

// knownState returns the state of the lock in the reply.
func (r *reply) knownState() lease.Known {
	return lease.Known{Floor: r.floor, Longest: r.longest, Low: r.low, Ledger: lease.JoinPause(r.paused, r.ledger)}
}

// inUse reports whether the lock was used now, so that the server keeps it for a while.
func (r reply) inUse() bool {
	switch r.verdict {
	case "granted", "renewed", "released", "closed", "settled", "queued", "passed", "stale", "paused":
		return true
	case "held":
		return r.Number(0) > 0
	}
	return false
}

// A row is the granted row in a reply.
type row struct{ slot, token, expiry, tick, attempt int64 }

func (r reply) grantedRow() row {
	if r.form != nil {
		return row{token: r.now, expiry: r.now + r.form.lease, attempt: 1}
	}
	return row{r.Number(0), r.Number(1), r.Number(2), r.Number(3), r.Number(4)}
}
