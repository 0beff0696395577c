package rules

import (
	"slices"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
)

// A Choice is the row whose holder is asked to stop, and the reason. Found is false if there is none.
type Choice struct {
	Row    lease.Row
	Reason string
	Found  bool
}

// Stop selects one of the held rows by the rules of stop.lua, and records the stop reason in the register. A lease that is not accounted for is not
// in the register, so it gets the reason only on its rows.
func (g *Register) Stop(r lease.StopRequest, rows []lease.Row, v View) Choice {
	if r.ID != "" {
		i := slices.IndexFunc(rows, func(row lease.Row) bool { return row.ID == r.ID })
		if i < 0 {
			return Choice{}
		}
		return g.toStop(rows[i], r.Reason, g.Runs[r.ID].StoppedFor)
	}
	tick := r.Tick.Unix()
	if g.isDecided(tick) || len(rows) < r.Slots {
		return Choice{}
	}
	var oldest, leaving *lease.Row
	for i := range rows {
		row, run := &rows[i], g.Runs[rows[i].ID]
		switch {
		case run.Stopped != "" && run.StoppedFor == tick:
			return Choice{*row, run.Stopped, true}
		case run.Stopped != "" && g.isDecided(run.StoppedFor): // the run is stopping, but not to make room for an undecided tick
			if leaving == nil {
				leaving = row
			}
		case run.Stopped == "" && run.beganBefore(row.Token, tick, r, v) && (oldest == nil || row.Token < oldest.Token):
			oldest = row
		}
	}
	switch {
	case leaving != nil:
		return g.toStop(*leaving, r.Reason, tick)
	case oldest != nil:
		return g.toStop(*oldest, r.Reason, tick)
	}
	return Choice{}
}

// toStop records why a run is asked to stop, and the tick that the run makes room for. It does not replace an earlier reason.
func (g *Register) toStop(row lease.Row, reason string, tick int64) Choice {
	run, accounted := g.Runs[row.ID]
	if !accounted {
		return Choice{row, reason, true}
	}
	if run.Stopped == "" {
		run.Stopped = reason
	}
	run.StoppedFor = tick
	g.Runs[row.ID] = run
	return Choice{row, run.Stopped, true}
}

// isDecided reports whether a tick is decided, so that no run has to make room for it.
func (g *Register) isDecided(tick int64) bool {
	e, known := g.Ticks[tick]
	return known && e.State == lease.TickDecided || tick <= g.low() && !(known && e.State == lease.TickReopened)
}

// beganBefore reports whether a run began before a tick was due. The token is the time of the grant. A token far ahead of the nodes' clocks comes
// from a wrong clock, and counts as earlier. A recovery began with the run that it recovers.
func (run Run) beganBefore(token lease.Token, tick int64, r lease.StopRequest, v View) bool {
	return run.Tick < tick && (int64(token) < clock.ToMicros(r.From) || int64(token) > minuteAfter(v.Latest) || run.Adopted != nil)
}
