package redis

import (
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A reply is the decoded reply of a script. Values has the values after the seven values that all replies have in common.
type reply struct {
	verdict string
	orphans int
	now     int64 // Redis's clock, in microseconds since 1970
	floor   int64
	longest int64
	low     int64
	ledger  string
	paused  string
	Values
	sent     time.Duration // the local clock before the request was sent
	received time.Duration // the local clock when the caller got the reply, after the last reply of the round trip
	acked    bool          // enough Redis replicas have acknowledged the write
	err      error         // if set, the outcome is unknown

	compact bool     // the lock is compact: see acquire_compact.lua
	form    *compact // the states of the compact lock that was granted; nil for other locks

	place int     // for a set of locks: the position of the lock that refused, from 1
	parts []reply // for a set of locks: the replies for its locks
}

func (r *reply) knownState() lease.Known {
	return lease.Known{Floor: r.floor, Longest: r.longest, Low: r.low, Ledger: lease.JoinPause(r.paused, r.ledger)}
}

// inUse reports whether the script has restarted the idle time of the lock.
func (r reply) inUse() bool {
	switch r.verdict {
	case "granted", "renewed", "released", "closed", "settled", "queued", "passed", "stale", "paused":
		return true
	case "held":
		return r.Number(0) > 0
	}
	return false
}

// A row is the grant in a reply.
type row struct{ slot, token, expiry, tick, attempt int64 }

func (r reply) grantedRow() row {
	if r.form != nil {
		return row{token: r.now, expiry: r.now + r.form.lease, attempt: 1}
	}
	return row{r.Number(0), r.Number(1), r.Number(2), r.Number(3), r.Number(4)}
}

// findFault describes a number of the reply that is out of bounds. It returns "" if all numbers are within bounds.
func (r reply) findFault() string {
	for _, n := range []struct {
		name     string
		is, most int64
	}{{"the time", r.now, lease.MaxNumber}, {"floor", r.floor, lease.MaxNumber}, {"longest", r.longest, lease.MaxLease.Microseconds()}, {"low", r.low, lease.MaxTick}, {"orphans", int64(r.orphans), lease.MaxNumber}} {
		if !lease.Sound(n.is, n.most) {
			return fmt.Sprintf("%s is %d", n.name, n.is)
		}
	}
	for i, v := range r.Values {
		if n, ok := v.(int64); ok && !lease.Sound(n, lease.MaxNumber) {
			return fmt.Sprintf("value %d is %d", i+common, n)
		}
	}
	switch r.verdict {
	case "granted":
		return r.grantedRow().findFault(r.now)
	case "renewed":
		return endFault(r.Number(0), r.now)
	}
	return ""
}

// findFault describes a grant that is out of bounds. It returns "" for other grants.
func (r row) findFault(now int64) string {
	if !lease.Sound(r.slot, lease.MaxSlots-1) || !lease.Sound(r.token-1, lease.MaxNumber-1) || !lease.Sound(r.tick, lease.MaxTick) || !lease.Sound(r.attempt, lease.MaxAttempts) {
		return fmt.Sprintf("slot %d is granted with token %d, tick %d, attempt %d", r.slot, r.token, r.tick, r.attempt)
	}
	return endFault(r.expiry, now)
}

func endFault(expiry, now int64) string {
	if !lease.Sound(expiry-now, lease.MaxLease.Microseconds()+lease.MinuteMicros) {
		return fmt.Sprintf("the lease ends at %d, and the time is %d", expiry, now)
	}
	return ""
}
