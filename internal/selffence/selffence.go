// Package selffence decides when the work under a lease that is not renewed is asked to stop and is killed, so that it is dead before the lease ends.
// The scheduler and `cronclave lock` use it in the process of the holder. The warden, a process beside it, uses it if the holder stands still.
package selffence

import "time"

// Limits has the length of a lease without renewal, and the time between SIGTERM and SIGKILL that its work may have.
type Limits struct{ Lease, Grace time.Duration }

// An Action is what the holder does to the work.
type Action int

const (
	GoOn Action = iota // nothing
	Stop               // SIGTERM
	Kill               // SIGKILL
)

// Check returns what to do if so much of the lease is left, and the time until the next check: a renewal may have come by then.
func (l Limits) Check(left time.Duration) (do Action, again time.Duration) {
	untilKill := left - l.killMargin()
	switch untilStop := untilKill - l.stopGrace(); {
	case untilStop > 0:
		return GoOn, untilStop
	case untilKill > 0:
		return Stop, untilKill
	}
	return Kill, l.Lease
}

// WardenKill returns the time before the end of the lease at which the warden kills: half a margin after a healthy holder does.
func (l Limits) WardenKill() time.Duration { return l.killMargin() / 2 }

// WardenStop returns the time before the end of the lease at which the warden sends SIGTERM, unless that is no earlier than WardenKill.
func (l Limits) WardenStop() time.Duration { return l.stopGrace() }

// killMargin returns the time before the end of the lease at which the holder kills: a twentieth of the lease, so that there is time to die.
func (l Limits) killMargin() time.Duration { return max(l.Lease/20, 50*time.Millisecond) }

// stopGrace returns the grace, at most a third of the lease. A longer one would stop work whose renewal is only a little late.
func (l Limits) stopGrace() time.Duration { return min(l.Grace, l.Lease/3) }
