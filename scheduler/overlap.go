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

// Overlap decides a tick that finds all slots of its job held, by earlier ticks or outside the schedule.
type Overlap string

// The policies of overlap.
const (
	OverlapSkip  Overlap = "skip"  // it is skipped. The default
	OverlapQueue Overlap = "queue" // the first one waits for a slot until its StartDeadline, those behind it are skipped
	// OverlapReplace has the oldest run stopped that had begun before the tick, on any replica; it ends as canceled (replaced), and the tick is run when it
	// is dead. A tick that still waits for that when newer ones need all the slots is skipped. Ticks that have waited since the server, or all replicas,
	// were away run one after the other, and replace nothing that was started meanwhile; but when such a run outlasts a period, the newest tick wins again.
	OverlapReplace Overlap = "replace"
)

func (o Overlap) fault() string {
	switch o {
	case OverlapSkip, OverlapQueue, OverlapReplace:
		return ""
	}
	return fmt.Sprintf("Overlap is %q: it must be %q, %q or %q", o, OverlapSkip, OverlapQueue, OverlapReplace)
}
