package scheduler

// Overlap: the outcome of a tick that finds all slots of its job held.
//
//	skip     the tick is skipped.
//	queue    the first tick waits for a slot until its start deadline. Those behind it are skipped.
//	replace  the oldest run that began before the tick is stopped, and the tick runs when that run is dead. If newer ticks
//	         need all the slots meanwhile, the tick is skipped.

import (
	"fmt"
)

// An Overlap decides a tick that finds all slots of its job held, by earlier ticks or outside the schedule.
type Overlap string

// The overlap policies.
const (
	OverlapSkip  Overlap = "skip"  // the tick is skipped; the default
	OverlapQueue Overlap = "queue" // the first tick waits for a slot until its StartDeadline; the ones behind it are skipped
	// OverlapReplace stops the oldest run that began before the tick, on any replica. That run ends as canceled (replaced), and the tick runs when it
	// is dead. A tick that still waits when newer ones need all the slots is skipped. Ticks that waited because the server or all replicas were away
	// run one after the other, and replace nothing that was started meanwhile; but if such a run outlasts a period, the newest tick wins again.
	OverlapReplace Overlap = "replace"
)

func (o Overlap) findFault() string {
	switch o {
	case OverlapSkip, OverlapQueue, OverlapReplace:
		return ""
	}
	return fmt.Sprintf("Overlap is %q: it must be %q, %q or %q", o, OverlapSkip, OverlapQueue, OverlapReplace)
}
