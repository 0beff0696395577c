package rules

import (
	"fmt"

	"github.com/cronclave/cronclave/internal/lease"
)

// mostRuns is the number of runs beyond which a register counts as damaged.
const mostRuns = 20 * lease.MaxSlots

// findFault describes a value of the register that is out of bounds. It returns "" if all values are within bounds.
func (g *Register) findFault() string {
	switch {
	case !lease.Sound(g.Low, lease.MaxTick) || !lease.Sound(g.Since, lease.MaxNumber) || !lease.Sound(g.Since2, lease.MaxNumber) || !lease.Sound(g.Last, lease.MaxTick) ||
		!lease.Sound(g.From, lease.MaxTick) || !lease.Sound(g.Behind, 2*dayTicks) || !lease.Sound(g.Rules.Since, lease.MaxNumber):
		return fmt.Sprintf("low %d, since %d and %d, last %d", g.Low, g.Since, g.Since2, g.Last)
	case !lease.Sound(g.Missed.After, lease.MaxTick) || !lease.Sound(g.Missed.Through, lease.MaxTick) || !lease.Sound(g.Missed.At, lease.MaxNumber):
		return fmt.Sprintf("ticks later than %d, up to %d, missed at %d", g.Missed.After, g.Missed.Through, g.Missed.At)
	case len(g.Ticks) > 4*mostEntries || len(g.Outcomes) > 4*mostFollowed || len(g.Followers) > 4*lease.MaxFollowers || len(g.Settled) > 4*mostSettled ||
		len(g.Runs) > mostRuns || len(g.Orphans) > mostRuns:
		return fmt.Sprintf("%d ticks, %d outcomes, %d followers, %d settled, %d runs, %d orphans",
			len(g.Ticks), len(g.Outcomes), len(g.Followers), len(g.Settled), len(g.Runs), len(g.Orphans))
	case g.Paused != "" && !lease.ReadPause(g.Paused).Sound():
		return fmt.Sprintf("paused %.60q", g.Paused)
	}
	for tick, e := range g.Ticks {
		if fault := e.findFault(tick); fault != "" {
			return fault
		}
	}
	for _, runs := range []map[string]Run{g.Runs, g.Orphans} {
		for id, r := range runs {
			if fault := r.findFault(id); fault != "" {
				return fault
			}
		}
	}
	return g.chainFault()
}

func (e Entry) findFault(tick int64) string {
	bad := !lease.Sound(tick, lease.MaxTick) || !lease.Sound(e.Prev, lease.MaxTick) || len(e.Slots) > lease.MaxSlots || e.State != lease.TickDecided && e.State != lease.TickPart && e.State != lease.TickReopened
	for _, s := range e.Slots {
		bad = bad || !lease.Sound(int64(s), lease.MaxSlots-1)
	}
	if bad {
		return fmt.Sprintf("tick %d after %d: %.20q", tick, e.Prev, e.State)
	}
	return ""
}

func (r Run) findFault(id string) string {
	switch {
	case !lease.Sound(int64(r.Slot), lease.MaxSlots-1) || !lease.Sound(r.Token, lease.MaxNumber) || !lease.Sound(r.Lease, lease.MaxNumber) || !lease.Sound(r.Tick, lease.MaxTick) ||
		!lease.Sound(int64(r.Attempt), lease.MaxAttempts) || !lease.Sound(r.StoppedFor, lease.MaxTick):
		return fmt.Sprintf("run %.40q: slot %d, token %d, lease %d, tick %d, attempt %d", id, r.Slot, r.Token, r.Lease, r.Tick, r.Attempt)
	case r.Adopted != nil && r.Adopted.Run.Adopted != nil:
		return fmt.Sprintf("run %.40q adopted a run that had adopted another run", id)
	case r.Adopted != nil:
		return r.Adopted.Run.findFault(r.Adopted.ID)
	}
	return ""
}

func (g *Register) chainFault() string {
	for tick, due := range g.Outcomes {
		if !lease.Sound(tick, lease.MaxTick) || due != spoiled && !lease.Sound(due, lease.MaxNumber) {
			return fmt.Sprintf("outcome of tick %d is due at %d", tick, due)
		}
	}
	for name, f := range g.Followers {
		if !lease.Sound(f.Used, lease.MaxTick) || !lease.Sound(f.Seen, lease.MaxNumber) {
			return fmt.Sprintf("follower %.40q has used %d, seen at %d", name, f.Used, f.Seen)
		}
	}
	for _, s := range g.Settled {
		if !lease.Sound(s.Tick, lease.MaxTick) || !lease.Sound(s.At, lease.MaxNumber) {
			return fmt.Sprintf("the settlement of tick %d has the time %d", s.Tick, s.At)
		}
	}
	return ""
}
