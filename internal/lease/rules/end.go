package rules

import (
	"cmp"

	"github.com/cronclave/cronclave/internal/lease"
)

// End removes the run of a request from the register. With undo, the run never began, and its tick is reopened. If the schedule has changed to
// another time zone meanwhile, the tick can't be reopened; the run then becomes an abandoned orphan, which a replica records.
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
	case undo && held && run.Adopted != nil: // the orphan waits for another recovery and keeps its first stop reason
		of := run.Adopted.Run
		of.Stopped = cmp.Or(of.Stopped, run.Stopped)
		g.Orphans[run.Adopted.ID] = of
	case undo && run.Attempt > 1:
		return false // the lease of a recovery has ended, and its orphan has the tick
	case undo && !held && (run.Abandoned || run.EndedWell || run.Stopped != ""):
		return false // the tick stays decided, and a replica records the orphan
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

// HandOver makes a run with a trigger an abandoned orphan. attempt is the last attempt that has begun.
func (g *Register) HandOver(id string, attempt int) {
	run, held := g.Runs[id]
	delete(g.Runs, id)
	if held && run.Trigger != "" {
		run.Adopted, run.Attempt = nil, attempt
		g.Orphans[id] = run
	}
	g.Abandon([]string{id})
}

// Abandon marks orphans whose tick must stay decided. A replica calls it before it records them as abandoned.
func (g *Register) Abandon(ids []string) {
	for _, id := range ids {
		if run, ok := g.Orphans[id]; ok {
			run.Abandoned = true
			g.Orphans[id] = run
		}
	}
}

// EndDead ends runs whose lease has ended: a majority has promised not to accept their rows up to a token. Runs with a trigger become orphans.
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
