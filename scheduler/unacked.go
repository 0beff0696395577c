package scheduler

import (
	"slices"
	"time"
)

// An unacked has the receipts for the records of one settlement that this replica has not acknowledged to Redis yet. Redis keeps a settlement until
// it is acknowledged, because the replica that settled the tick may have died before it recorded the settlement.
type unacked struct {
	tick    time.Time
	written []*receipt
}

// ackDelay is the time for which acknowledgements are collected before they are sent.
const ackDelay = 10 * time.Second

// maxUnacked is the number of settlements of a job that Redis keeps. If there are more, Redis drops the oldest.
const maxUnacked = 100

// isSettled reports whether this replica has queued the records of the settlement that ends with a tick.
func (t *task) isSettled(tick time.Time) bool {
	return slices.ContainsFunc(t.unacked, func(u unacked) bool { return u.tick.Equal(tick) })
}

// ackableTicks returns the ticks of the settlements whose records are all written.
func (t *task) ackableTicks() (ticks []time.Time) {
	for _, u := range t.unacked {
		if !slices.ContainsFunc(u.written, func(r *receipt) bool { return !r.succeeded() }) {
			ticks = append(ticks, u.tick)
		}
	}
	return ticks
}
