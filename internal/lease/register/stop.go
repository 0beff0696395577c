package register

import (
	"slices"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
)

// A Choice is the row whose holder is to stop, with the reason.
type Choice struct {
	Row    lease.Row
	Reason string
	Found  bool
}

// Stop chooses among the held rows, as stop.lua does, and enters the choice in the register. (A lease that is not accounted for has the mark only on
// its rows; it leaves no orphan.)
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
		case run.Stopped != "" && g.isDecided(run.StoppedFor): // it does not make room yet
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

// toStop enters the reason for which a run is to stop, and the tick that it makes room for. The first reason stays.
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

// isDecided reports whether a tick needs no room any more.
func (g *Register) isDecided(tick int64) bool {
	e, known := g.Ticks[tick]
	return known && e.State == lease.TickDecided || tick <= g.low() && !(known && e.State == lease.TickReopened)
}

// beganBefore reports whether a run had begun before a tick was due. Its token shows the time: a token that is ahead of the clocks was given by a wrong
// clock, and shows nothing. A recovery began with the run that it recovers.
func (run Run) beganBefore(token lease.Token, tick int64, r lease.StopRequest, v View) bool {
	return run.Tick < tick && (int64(token) < clock.ToMicros(r.From) || int64(token) > minuteAfter(v.Latest) || run.Adopted != nil)
}
