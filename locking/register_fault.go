package locking

import "fmt"

// Bounds of a register: what is beyond them, no client has written.
const (
	mostRuns      = 20 * mostSlots
	mostFollowers = 10_000
)

// fault tells what is damaged in a register that was read; "" if nothing is.
func (g *register) fault() string {
	switch {
	case !sound(g.Low, maxTick) || !sound(g.Since, maxNumber) || !sound(g.Since2, maxNumber) || !sound(g.Last, maxTick):
		return fmt.Sprintf("low %d, since %d and %d, last %d", g.Low, g.Since, g.Since2, g.Last)
	case len(g.Ticks) > 4*mostEntries || len(g.Outcomes) > 4*mostFollowed || len(g.Followers) > mostFollowers || len(g.Settled) > 4*mostSettled ||
		len(g.Runs) > mostRuns || len(g.Orphans) > mostRuns:
		return fmt.Sprintf("%d ticks, %d outcomes, %d followers, %d settled, %d runs, %d orphans",
			len(g.Ticks), len(g.Outcomes), len(g.Followers), len(g.Settled), len(g.Runs), len(g.Orphans))
	case g.Paused != "" && !readPause(g.Paused).sound():
		return fmt.Sprintf("paused %.60q", g.Paused)
	}
	for tick, e := range g.Ticks {
		if fault := e.fault(tick); fault != "" {
			return fault
		}
	}
	for _, runs := range []map[string]runRow{g.Runs, g.Orphans} {
		for id, r := range runs {
			if fault := r.fault(id); fault != "" {
				return fault
			}
		}
	}
	return g.chainFault()
}

func (e entry) fault(tick int64) string {
	bad := !sound(tick, maxTick) || !sound(e.Prev, maxTick) || len(e.Slots) > mostSlots || e.State != decidedEntry && e.State != partDecided && e.State != reopened
	for _, s := range e.Slots {
		bad = bad || !sound(int64(s), mostSlots-1)
	}
	if bad {
		return fmt.Sprintf("tick %d after %d: %.20q", tick, e.Prev, e.State)
	}
	return ""
}

func (r runRow) fault(id string) string {
	switch {
	case !sound(int64(r.Slot), mostSlots-1) || !sound(r.Token, maxNumber) || !sound(r.Lease, maxNumber) || !sound(r.Tick, maxTick) ||
		!sound(int64(r.Attempt), mostAttempts) || !sound(r.StoppedFor, maxTick):
		return fmt.Sprintf("run %.40q: slot %d, token %d, lease %d, tick %d, attempt %d", id, r.Slot, r.Token, r.Lease, r.Tick, r.Attempt)
	case r.Heir != nil && r.Heir.Run.Heir != nil:
		return fmt.Sprintf("run %.40q carries on one that carries on", id)
	case r.Heir != nil:
		return r.Heir.Run.fault(r.Heir.ID)
	}
	return ""
}

func (g *register) chainFault() string {
	for tick, due := range g.Outcomes {
		if !sound(tick, maxTick) || due != spoiled && !sound(due, maxNumber) {
			return fmt.Sprintf("outcome of tick %d is due at %d", tick, due)
		}
	}
	for name, f := range g.Followers {
		if !sound(f.Used, maxTick) || !sound(f.Seen, maxNumber) {
			return fmt.Sprintf("follower %.40q has used %d, seen at %d", name, f.Used, f.Seen)
		}
	}
	for _, s := range g.Settled {
		if !sound(s.Tick, maxTick) || !sound(s.At, maxNumber) {
			return fmt.Sprintf("tick %d was settled at %d", s.Tick, s.At)
		}
	}
	return ""
}
