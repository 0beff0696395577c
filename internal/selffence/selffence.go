// Package selffence says when the work under a lease that is not renewed is asked to stop and is killed, so that it is dead before the lease ends. The
// scheduler and `cronclave lock` do so in the holder's own process. The warden, a process beside it, does so where the holder stands still.
package selffence

import "time"

// Limits are a lease's length without renewal, and the time that its work may have between SIGTERM and SIGKILL.
type Limits struct{ Lease, Grace time.Duration }

// Action is what the holder does with the work.
type Action int

const (
	GoOn Action = iota // nothing
	Stop               // SIGTERM
	Kill               // SIGKILL
)

// Check returns what to do with so much of the lease left, and when to check again: a renewal may have come by then.
func (l Limits) Check(left time.Duration) (do Action, again time.Duration) {
	untilKill := left - l.margin()
	switch untilStop := untilKill - l.grace(); {
	case untilStop > 0:
		return GoOn, untilStop
	case untilKill > 0:
		return Stop, untilKill
	}
	return Kill, l.Lease
}

// WardenKill is how long before the lease's end the warden kills: half a margin after a holder in good health does.
func (l Limits) WardenKill() time.Duration { return l.margin() / 2 }

// WardenStop is how long before the lease's end the warden sends SIGTERM, unless that is no earlier than WardenKill.
func (l Limits) WardenStop() time.Duration { return l.grace() }

// margin is how long before the lease's end the holder kills: a twentieth of the lease, so that dying has time.
func (l Limits) margin() time.Duration { return max(l.Lease/20, 50*time.Millisecond) }

// grace is at most a third of the lease, so that a renewal that comes late is not too late.
func (l Limits) grace() time.Duration { return min(l.Grace, l.Lease/3) }
