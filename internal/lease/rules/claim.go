package rules

import (
	"cmp"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A Ruling is the decision on a claim. The Word "slot" means that the claim needs a row in another slot, because the tick can't run in [View.Slot].
type Ruling struct {
	Word    string // a reply of acquire.lua, or "slot"
	Outcome string
	Until   int64
	Holder  string
	Run     Run
}

// Claim applies the rules of acquire.lua to a request. The caller has checked that the request is not late, and that its lease id was not released.
func (g *Register) Claim(r lease.Request, owner string, v View) Ruling {
	if run, ok := g.Runs[r.ID]; ok {
		switch {
		case v.Slot < 0 && !slices.Contains(v.Shut, r.ID): // an earlier request with this id was granted, and its lease may still be held
			return Ruling{Word: "held"}
		case v.Slot != run.Slot:
		case v.Kept == run.Token: // a repeated request whose first reply was lost
			return Ruling{Word: lease.OutcomeGranted, Run: run}
		case slices.Contains(v.Ballots, run.Token): // an earlier ballot of this claim has written the grant into the register
			run.Token = v.Token
			g.Runs[r.ID] = run
			return Ruling{Word: lease.OutcomeGranted, Run: run}
		case run.Trigger == "": // the lease of the earlier grant has ended
			delete(g.Runs, r.ID)
		}
	}
	if r.Tick != nil {
		g.Behind = r.Tick.Behind()
		if from := max(lease.ToMicros(r.Tick.NotBefore), lease.ToMicros(r.Tick.At)); from > v.Now {
			if s := r.Tick.Schedule; s != g.Digest && s != g.Digest2 { // record a new schedule before its tick, because ticks up to the instant of the record count as decided
				g.mend(v.Latest)
				g.know(s, false, v.Now)
			}
			return Ruling{Word: "early", Until: from}
		}
	}
	g.mend(v.Latest)
	if g.isUnheard(r) {
		return Ruling{Word: "unheard"}
	}
	if r.Tick == nil {
		return g.claimSlot(r, owner, v)
	}
	g.know(r.Tick.Schedule, false, v.Now)
	if d, over := g.decidedRuling(r, v); over {
		return d
	}
	if outcome, ok := lease.ReadPause(g.Paused).Stops(r.Tick, v.Now); ok {
		return g.settle(r, v, outcome)
	}
	if deadline := lease.ToMicros(r.Tick.Deadline); deadline > 0 && v.Now > deadline {
		if tick := r.Tick.At.Unix(); lease.ZoneOf(r.Tick.Schedule) != "" && !g.hasGrant(tick) {
			g.Missed = Missed{tick - 1, tick, v.Now}
		}
		return g.settle(r, v, r.Tick.IfLate)
	}
	return g.claimTick(r, owner, v)
}

// isUnheard reports whether a run got the lease id of r, but its lease ended before the claimant got the reply. Such a run has never begun.
func (g *Register) isUnheard(r lease.Request) bool {
	run, orphaned := g.Orphans[r.ID]
	if held, ok := g.Runs[r.ID]; ok && held.Trigger != "" { // a run in the register without a row on a majority: its lease has ended
		run, orphaned = held, true
	}
	return r.Adopt == "" && orphaned && run.Attempt == 1
}

// decidedRuling returns the ruling for a decided tick. over is false if the tick is undecided.
func (g *Register) decidedRuling(r lease.Request, v View) (d Ruling, over bool) {
	tick := r.Tick.At.Unix()
	e, known := g.Ticks[tick]
	open := known && e.State == lease.TickReopened
	if !(tick <= g.low() && !open || tick*1e6 <= g.began || known && e.State == lease.TickDecided) {
		return Ruling{}, false
	}
	if m := g.Missed; lease.ZoneOf(r.Tick.Schedule) != "" && e.State != lease.TickPart && tick > m.After && tick <= m.Through && lease.ToMicros(r.Tick.NotBefore) > m.At {
		// Another replica with other time zone data settled the tick as missed, before this replica's instant of the tick: reopen it.
		g.Missed, g.Ticks[tick] = Missed{}, Entry{Prev: r.Previous(), State: lease.TickReopened}
		return Ruling{}, false
	}
	how, mine := "", false
	if g.Last == tick {
		how, mine = g.How, g.By == r.ID
	}
	if known {
		how = map[string]string{lease.TickDecided: e.How, lease.TickPart: lease.OutcomeGranted, lease.TickReopened: ""}[e.State]
	}
	if mine && how != lease.OutcomeGranted {
		return Ruling{Word: "settled", Outcome: how}, true // a repeated request whose first reply was lost
	}
	until, who := v.holder(g, tick)
	return Ruling{Word: "decided", Outcome: how, Until: until, Holder: who}, true
}

func (g *Register) settle(r lease.Request, v View, outcome string) Ruling {
	tick, prev := r.Tick.At.Unix(), r.Previous()
	if g.hasGrant(tick) { // the tick ran, although fewer than PerTick times, so its outcome is granted
		g.decide(tick, prev, lease.OutcomeGranted, r.ID, v.Now)
		until, who := v.holder(g, tick)
		return Ruling{Word: "decided", Outcome: lease.OutcomeGranted, Until: until, Holder: who}
	}
	g.decide(tick, prev, outcome, r.ID, v.Now)
	if r.Tick.KeepOutcome {
		g.keepSettled(tick, v.Now, lease.SingleSettlement(outcome, r.Tick.Behind()))
	}
	return Ruling{Word: "settled", Outcome: outcome}
}

// keepSettled keeps a settlement until a replica has recorded it, because the replica that settled the ticks may die before it records them.
func (g *Register) keepSettled(tick, now int64, how string) {
	g.Settled = append(g.Settled, Settled{tick, now, how})
	g.Settled = g.Settled[max(len(g.Settled)-mostSettled, 0):]
}

// Acknowledge forgets settlements that a replica has recorded.
func (g *Register) Acknowledge(ticks []time.Time) {
	g.Settled = slices.DeleteFunc(g.Settled, func(s Settled) bool { return slices.ContainsFunc(ticks, lease.FromMicros(s.Tick*1e6).Equal) })
}

// hasGrant reports whether an undecided tick was granted in at least one slot.
func (g *Register) hasGrant(tick int64) bool { return len(g.Ticks[tick].Slots) > 0 }

// Fits reports whether an undecided tick may run in a slot. It may not run again in a slot in which it was granted. If it was reopened for some
// slots, it may run only in these.
func (g *Register) Fits(r lease.Request, slot int) bool {
	if r.Tick == nil {
		return true
	}
	e, known := g.Ticks[r.Tick.At.Unix()]
	if !known || len(e.Slots) == 0 {
		return true
	}
	return slices.Contains(e.Slots, slot) == (e.State == lease.TickReopened)
}

func (g *Register) claimTick(r lease.Request, owner string, v View) Ruling {
	tick, prev := r.Tick.At.Unix(), r.Previous()
	e := g.Ticks[tick]
	used := slices.Compact(slices.Sorted(slices.Values(e.Slots)))
	back := g.hasGrant(tick) && e.State == lease.TickReopened
	if !back && g.hasGrant(tick) && len(used) >= r.Tick.PerTick {
		return g.settle(r, v, "") // an earlier request had a greater PerTick and left the tick undecided
	}
	if v.Slot < 0 || !g.Fits(r, v.Slot) {
		if v.Full && !g.hasGrant(tick) && r.Tick.IfHeld != "" && !(r.Tick.KeepFirst && g.followsDecided(prev)) {
			return g.settle(r, v, r.Tick.IfHeld)
		}
		if v.Slot >= 0 {
			return Ruling{Word: "slot"}
		}
	}
	granted := g.claimSlot(r, owner, v)
	if granted.Word != lease.OutcomeGranted {
		return granted
	}
	switch {
	case back:
		left := slices.DeleteFunc(used, func(s int) bool { return s == v.Slot })
		if len(left) == 0 {
			g.decide(tick, prev, lease.OutcomeGranted, r.ID, v.Now)
		} else {
			g.Ticks[tick] = Entry{Prev: prev, State: lease.TickReopened, Slots: left}
		}
	case len(used)+1 >= r.Tick.PerTick:
		g.decide(tick, prev, lease.OutcomeGranted, r.ID, v.Now)
	default:
		g.Ticks[tick] = Entry{Prev: prev, State: lease.TickPart, Slots: append(used, v.Slot)}
		g.advance(v.Now)
	}
	return granted
}

// claimSlot grants the row that a majority gave to the claimant, and adds the run to the register. Without such a row, it refuses.
func (g *Register) claimSlot(r lease.Request, owner string, v View) Ruling {
	if v.Slot < 0 {
		if v.Full {
			until, who := v.holder(g, 0)
			return Ruling{Word: "held", Until: until, Holder: who}
		}
		return Ruling{Word: "held"}
	}
	run := Run{Owner: owner, Slot: v.Slot, Token: v.Token, Lease: r.Lease.Microseconds(), Attempt: 1, Trigger: r.Trigger, Memo: r.Memo}
	if r.Tick != nil {
		run.Tick = r.Tick.At.Unix()
	}
	if r.Adopt != "" { // the run takes over the orphan's tick with the next attempt; no check of the ledger, because the tick was granted before
		found, ok := g.Orphans[r.Adopt]
		if !ok {
			return Ruling{Word: "decided", Outcome: "adopted"}
		}
		run.Attempt, run.Tick, run.Adopted = found.Attempt+1, found.Tick, &Adopted{r.Adopt, found}
		run.Memo = cmp.Or(run.Memo, found.Memo)
		delete(g.Orphans, r.Adopt)
	}
	g.Runs[r.ID] = run
	return Ruling{Word: lease.OutcomeGranted, Run: run}
}

// A Choice is the row whose holder is asked to stop, and the reason. Found is false if no row was selected.
type Choice struct {
	Row    lease.Row
	Reason string
	Found  bool
}

// Stop selects one of the held rows by the rules of stop.lua, and records the reason in the run of the row. A lease without a run in the register
// (see [lease.Request.Accounted]) gets the reason only on its rows.
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
		case run.Stopped != "" && g.isDecided(run.StoppedFor): // the run is stopping for another reason than to make room for an undecided tick
			leaving = cmp.Or(leaving, row)
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

// toStop records the reason of a stop request, and the tick that the run makes room for. An earlier reason is kept.
func (g *Register) toStop(row lease.Row, reason string, tick int64) Choice {
	run, accounted := g.Runs[row.ID]
	if !accounted {
		return Choice{row, reason, true}
	}
	run.Stopped = cmp.Or(run.Stopped, reason)
	run.StoppedFor = tick
	g.Runs[row.ID] = run
	return Choice{row, run.Stopped, true}
}

// isDecided reports whether a tick is decided. Such a tick needs no slot, so no run has to make room for it.
func (g *Register) isDecided(tick int64) bool {
	e, known := g.Ticks[tick]
	return known && e.State == lease.TickDecided || tick <= g.low() && !(known && e.State == lease.TickReopened)
}

// beganBefore reports whether a run began before a tick was due. The token is the time of the grant. A token far ahead of the nodes' clocks comes
// from a wrong clock, so the run counts as earlier. A recovery counts as earlier, because it continues a run of an earlier tick.
func (run Run) beganBefore(token lease.Token, tick int64, r lease.StopRequest, v View) bool {
	return run.Tick < tick && (int64(token) < lease.ToMicros(r.From) || int64(token) > minuteAfter(v.Latest) || run.Adopted != nil)
}

// End removes the run of a request from the register. With undo, the run never began, and its tick is reopened. If the schedule has moved to another
// time zone since the grant, the tick can't be reopened. The run then becomes an abandoned orphan, which a replica records.
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
	case undo && held && run.Adopted != nil: // the adopted orphan waits for another recovery, and keeps its first stop reason
		of := run.Adopted.Run
		of.Stopped = cmp.Or(of.Stopped, run.Stopped)
		g.Orphans[run.Adopted.ID] = of
	case undo && run.Attempt > 1:
		return false // the run is a recovery whose lease has ended: its orphan keeps the tick
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

// HandOver removes a run. A run with a trigger becomes an abandoned orphan. attempt is the last attempt that has begun.
func (g *Register) HandOver(id string, attempt int) {
	run, held := g.Runs[id]
	delete(g.Runs, id)
	if held && run.Trigger != "" {
		run.Adopted, run.Attempt = nil, attempt
		g.Orphans[id] = run
	}
	g.Abandon([]string{id})
}

// Abandon marks orphans as abandoned: their ticks stay decided. A replica calls it before it records the orphans as abandoned.
func (g *Register) Abandon(ids []string) {
	for _, id := range ids {
		if run, ok := g.Orphans[id]; ok {
			run.Abandoned = true
			g.Orphans[id] = run
		}
	}
}

// EndDead ends the runs in dead whose token is at most upTo. Their leases have ended: a majority of the nodes has promised to refuse renewals and
// claims up to this token. Runs with a trigger become orphans.
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
