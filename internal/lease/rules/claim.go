package rules

import (
	"cmp"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A Ruling is the decision on a claim. Word is "slot" if the tick can't run in [View.Slot], and the claim needs a row in another slot.
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
		case v.Slot < 0 && !slices.Contains(v.Shut, r.ID): // the request was granted before, and its lease may still be held
			return Ruling{Word: "held"}
		case v.Slot != run.Slot:
		case v.Kept == run.Token: // a repeated request whose first reply was lost
			return Ruling{Word: lease.OutcomeGranted, Run: run}
		case slices.Contains(v.Ballots, run.Token): // this claim wrote the grant with an earlier ballot
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
			if s := r.Tick.Schedule; s != g.Digest && s != g.Digest2 { // announce the schedule now: a schedule announced at its tick would begin after the tick
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

// isUnheard reports whether a run was granted under this id, and its lease ended before the claimant got the reply. Such a run has never begun.
func (g *Register) isUnheard(r lease.Request) bool {
	run, orphaned := g.Orphans[r.ID]
	if held, ok := g.Runs[r.ID]; ok && held.Trigger != "" { // its lease has ended: no majority has its row
		run, orphaned = held, true
	}
	return r.Adopt == "" && orphaned && run.Attempt == 1
}

func (g *Register) heldRuling(v View) Ruling {
	until, who := v.holder(g, 0)
	return Ruling{Word: "held", Until: until, Holder: who}
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
		// Another replica with other time zone data settled the tick as missed before it was due on this replica: reopen it.
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

// keepSettled keeps the settlement of ticks until a replica has recorded it, because the replica that settled them may die before that.
func (g *Register) keepSettled(tick, now int64, how string) {
	g.Settled = append(g.Settled, Settled{tick, now, how})
	g.Settled = g.Settled[max(len(g.Settled)-mostSettled, 0):]
}

// Acknowledge forgets settlements that a replica has recorded.
func (g *Register) Acknowledge(ticks []time.Time) {
	g.Settled = slices.DeleteFunc(g.Settled, func(s Settled) bool { return slices.ContainsFunc(ticks, lease.FromMicros(s.Tick*1e6).Equal) })
}

// hasGrant reports whether an undecided tick was granted in some slots.
func (g *Register) hasGrant(tick int64) bool { return len(g.Ticks[tick].Slots) > 0 }

// Fits reports whether a slot may run an undecided tick. A slot that was granted the tick may not run it again. If the tick was reopened for some
// slots, only these may run it.
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
		return g.settle(r, v, "") // an earlier request had a greater PerTick
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

// claimSlot grants the row that a majority gave to the claimant, and adds the run to the register.
func (g *Register) claimSlot(r lease.Request, owner string, v View) Ruling {
	if v.Slot < 0 {
		if v.Full {
			return g.heldRuling(v)
		}
		return Ruling{Word: "held"}
	}
	run := Run{Owner: owner, Slot: v.Slot, Token: v.Token, Lease: r.Lease.Microseconds(), Attempt: 1, Trigger: r.Trigger, Memo: r.Memo}
	if r.Tick != nil {
		run.Tick = r.Tick.At.Unix()
	}
	if r.Adopt != "" { // the run takes over the orphan's tick, with the next attempt; the ledger does not matter
		found, ok := g.Orphans[r.Adopt]
		if !ok {
			return Ruling{Word: "decided", Outcome: "adopted"}
		}
		run.Attempt, run.Tick, run.Adopted = found.Attempt+1, found.Tick, &Adopted{r.Adopt, found}
		if run.Memo == "" {
			run.Memo = found.Memo
		}
		delete(g.Orphans, r.Adopt)
	}
	g.Runs[r.ID] = run
	return Ruling{Word: lease.OutcomeGranted, Run: run}
}

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

// isDecided reports whether a tick is decided. No run has to make room for such a tick.
func (g *Register) isDecided(tick int64) bool {
	e, known := g.Ticks[tick]
	return known && e.State == lease.TickDecided || tick <= g.low() && !(known && e.State == lease.TickReopened)
}

// beganBefore reports whether a run began before a tick was due. The token is the time of the grant. A token far ahead of the nodes' clocks comes
// from a wrong clock, and counts as earlier. A recovery began with the run that it recovers.
func (run Run) beganBefore(token lease.Token, tick int64, r lease.StopRequest, v View) bool {
	return run.Tick < tick && (int64(token) < lease.ToMicros(r.From) || int64(token) > minuteAfter(v.Latest) || run.Adopted != nil)
}

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
