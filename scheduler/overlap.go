package scheduler

// Overlap: policies for a tick that finds all slots of its job held.
//
//	skip     the tick is skipped.
//	queue    the first such tick waits for a slot until its start deadline. The ticks after it are skipped.
//	replace  the oldest run that began before the tick is stopped, and the tick runs when that run is dead. If newer ticks
//	         need all the slots before that, the tick is skipped.

import (
	"fmt"
)

// An Overlap is the policy for a tick that finds all slots of its job held, by runs of earlier ticks or outside the schedule.
type Overlap string

// The overlap policies.
const (
	OverlapSkip  Overlap = "skip"  // the tick is skipped; the default
	OverlapQueue Overlap = "queue" // the first such tick waits for a slot until its StartDeadline; the ticks after it are skipped
	// OverlapReplace stops the oldest run that began before the tick, on any replica. That run ends as canceled (replaced), and then the tick runs. If
	// newer ticks need all the slots before the tick runs, the tick is skipped. Late ticks that waited because Redis or all replicas were down run one
	// after the other, without replacing each other. But if the run of such a late tick lasts longer than the period of the schedule, the newest tick
	// replaces it.
	OverlapReplace Overlap = "replace"
)

func (o Overlap) findFault() string {
	switch o {
	case OverlapSkip, OverlapQueue, OverlapReplace:
		return ""
	}
	return fmt.Sprintf("Overlap is %q: it must be %q, %q or %q", o, OverlapSkip, OverlapQueue, OverlapReplace)
}
