package register

import (
	"cmp"

	"github.com/cronclave/cronclave/internal/lease"
)

// End takes the run of a request out of the register. With undo the run never began: its tick is open again, unless the register has the ticks of
// another zone by now. Then the run is an abandoned orphan, which a replica records.
func (g *Register) End(r *lease.Request, undo bool) (changed bool) {
	id := r.ID
	run, held := g.Runs[id]
	if !held {
		var orphaned bool
		if run, orphaned = g.Orphans[id]; !orphaned {
			return false
		}
	}
	switch {
	case undo && held && run.Adopted != nil: // the orphan waits for another recovery; the first stop reason counts
		of := run.Adopted.Run
		of.Stopped = cmp.Or(of.Stopped, run.Stopped)
		g.Orphans[run.Adopted.ID] = of
	case undo && run.Attempt > 1:
		return false // the lease of a recovery that ended: its orphan has the tick
	case undo && !held && (run.Abandoned || run.EndedWell || run.Stopped != ""):
		return false // the tick stays decided, and a replica records it
	case undo && run.Tick > 0 && g.Digest != "" && r.Zone() != lease.ZoneOf(g.Digest):
		g.HandOver(id, run.Attempt)
		return true
	case undo && run.Tick > 0:
		g.reopen(run.Tick, run.Slot, r.Previous(), r.PerTick())
	}
	delete(g.Runs, id)
	delete(g.Orphans, id)
	return true
}

// HandOver makes a run an orphan, unless it is one already. attempt is the last one that has begun.
func (g *Register) HandOver(id string, attempt int) {
	run, held := g.Runs[id]
	delete(g.Runs, id)
	if held && run.Trigger != "" {
		run.Adopted, run.Attempt = nil, attempt
		g.Orphans[id] = run
	}
	g.Abandon([]string{id})
}

// Abandon marks orphans whose tick must stay decided, before they are recorded as abandoned.
func (g *Register) Abandon(ids []string) {
	for _, id := range ids {
		if run, ok := g.Orphans[id]; ok {
			run.Abandoned = true
			g.Orphans[id] = run
		}
	}
}

// EndDead ends the runs of dead holders, whose rows a majority has shut up to a token. Runs with a trigger become orphans.
func (g *Register) EndDead(dead []string, upTo int64) {
	for _, id := range dead {
		run, ok := g.Runs[id]
		if !ok || run.Token > upTo {
			continue
		}
		delete(g.Runs, id)
		if run.Trigger != "" {
			run.Adopted = nil
			g.Orphans[id] = run
			if !run.EndedWell {
				g.spoil(run.Tick)
			}
		}
	}
}
