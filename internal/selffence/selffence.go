// Package selffence computes the times at which work gets SIGTERM and SIGKILL if its lease is not renewed, so that the work is dead before the lease ends.
// The scheduler and `cronclave lock` use it in the process that holds the lease. The warden, a separate process, uses it in case the holder does not act.
package selffence

import "time"

// Limits has the full length of a lease, and the time (Grace) that the work may take between SIGTERM and SIGKILL.
type Limits struct{ Lease, Grace time.Duration }

// An Action is the step that the holder of a lease takes against the work.
type Action int

const (
	GoOn Action = iota // no action
	Stop               // send SIGTERM
	Kill               // send SIGKILL
)

// Check returns the action for a lease with the remaining time left, and the time until the next check. A renewal makes the result obsolete.
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

// WardenKill returns the time before the end of the lease at which the warden kills the work. A healthy holder has killed the work earlier, because the
// margin of the holder is twice as long.
func (l Limits) WardenKill() time.Duration { return l.killMargin() / 2 }

// WardenStop returns the time before the end of the lease at which the warden sends SIGTERM. If Grace is short, SIGKILL comes first, without SIGTERM.
func (l Limits) WardenStop() time.Duration { return l.stopGrace() }

// killMargin returns the time before the end of the lease at which the holder kills the work: a twentieth of the lease, so that the work has time to die.
func (l Limits) killMargin() time.Duration { return max(l.Lease/20, 50*time.Millisecond) }

// stopGrace returns Grace, but at most a third of the lease. A longer grace would stop work whose renewal is only a little late.
func (l Limits) stopGrace() time.Duration { return min(l.Grace, l.Lease/3) }
