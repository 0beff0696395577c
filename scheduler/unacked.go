package scheduler

import (
	"slices"
	"time"
)

// An unacked is the records of ticks that were settled without a run, which this replica has queued and not yet acknowledged to the server. The
// server keeps a settlement until it is acknowledged, because the replica that settled it may have died before it could record it.
type unacked struct {
	tick    time.Time
	written []*receipt
}

// ackDelay is the time for which acknowledgements are collected.
const ackDelay = 10 * time.Second

// maxUnacked is the number of settlements of a job that the server keeps. It drops the oldest.
const maxUnacked = 100

// isSettled reports whether this replica has queued the records of the ticks that were settled together up to a tick.
func (t *task) isSettled(tick time.Time) bool {
	return slices.ContainsFunc(t.unacked, func(u unacked) bool { return u.tick.Equal(tick) })
}

// ackableTicks returns the ticks whose records are written.
func (t *task) ackableTicks() (ticks []time.Time) {
	for _, u := range t.unacked {
		if !slices.ContainsFunc(u.written, func(r *receipt) bool { return !r.succeeded() }) {
			ticks = append(ticks, u.tick)
		}
	}
	return ticks
}
