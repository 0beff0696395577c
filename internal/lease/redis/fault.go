package redis

import (
	"fmt"

	"github.com/cronclave/cronclave/internal/lease"
)

// findFault returns a description of the damage in the numbers of a reply; "" if there is none.
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

// findFault returns a description of the damage in a grant; "" if there is none.
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
