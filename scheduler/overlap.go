package scheduler

import (
	"fmt"
	"time"
)

// Overlap says what becomes of a tick that finds all slots of its job held, by earlier ticks or outside the schedule.
type Overlap string

// The policies of overlap.
const (
	OverlapSkip  Overlap = "skip"  // it is skipped. The default
	OverlapQueue Overlap = "queue" // the first one waits for a slot until its StartDeadline, those behind it are skipped
	// OverlapReplace has the oldest run stopped that had begun before the tick, on whichever replica; it ends as canceled (replaced), and the tick is run when
	// it is dead. A tick that still waits for that when newer ones need all the slots is skipped. What waited since the server, or all replicas, were
	// away is run one after the other, and replaces nothing that was started meanwhile; but when such a run outlasts a period, the newest tick wins again.
	OverlapReplace Overlap = "replace"
)

func (o Overlap) fault() string {
	switch o {
	case OverlapSkip, OverlapQueue, OverlapReplace:
		return ""
	}
	return fmt.Sprintf("Overlap is %q: it must be %q, %q or %q", o, OverlapSkip, OverlapQueue, OverlapReplace)
}

const (
	// heldPause is how often a tick that waits for its turn asks again while all slots are held elsewhere.
	heldPause = 250 * time.Millisecond
	// longestHeldPause bounds it where others tell when a slot is free.
	longestHeldPause = 4 * time.Second
)

// heldPause grows with the time for which a tick has found all slots held, by a sixteenth of it, if it is told when that is over: then asking is for
// words that get lost.
func (s *Scheduler) heldPause(k *tick, now time.Time) time.Duration {
	if k.held.IsZero() {
		k.held = now
	}
	if s.cfg.Notices == nil || k.job.Overlap == OverlapSkip {
		return heldPause
	}
	return min(max(now.Sub(k.held)/16, heldPause), longestHeldPause)
}

// hasten asks for what waits for a slot of a job, since one is free: ticks that are to be recovered, and then others, each replica in its turn.
func (s *Scheduler) hasten(t *task, now time.Time) {
	turn := now
	if s.hastenHeirs(t, now) {
		turn = now.Add(rankStep)
	}
	for _, k := range t.open {
		if k.waited && !k.asking && !k.parked && k.mayWin() {
			s.agenda.ask(k, turn.Add(s.turn(t, k.at)), now)
		}
	}
}
