package locking

import (
	"slices"
	"time"
)

// view is what the nodes tell of a lock's rows, as one claimant has heard it.
type view struct {
	now    int64 // the middle of the nodes' clocks: not before this,
	latest int64 // nor after this
	slot   int   // the row that a majority has given to the claimant, -1 for none
	token  int64 // its ballot
	kept   int64 // the token of that row: not the ballot where the row was this id's already
	// ballots are those of this claimant's tries, of which a minority may have accepted one.
	ballots []int64
	full    bool // a majority has given each row to somebody else
	rows    []nodeRow
	unheard int      // nodes that have not told
	shut    []string // lease ids of which no majority has a live row, nor will have again
}

// holder is who holds a row: of a tick, or with 0 any; the one whose lease ends first.
func (v view) holder(g *register, tick int64) (until int64, owner string) {
	for _, row := range v.rows {
		if tick != 0 && g.Runs[row.id].Tick != tick {
			continue
		}
		if until == 0 || row.expiry < until {
			until, owner = row.expiry, row.owner
		}
	}
	return until, owner
}

// verdict is what the rules say of a claim. "slot" asks for another row than view.slot.
type verdict struct {
	word    string // as in lua/acquire.lua, or "slot"
	outcome string
	until   int64
	holder  string
	run     runRow
}

// claim applies the rules of lua/acquire.lua to a request that is neither late nor dead. It changes the register only where the verdict says so.
func (g *register) claim(r Request, owner string, v view) verdict {
	if run, ok := g.Runs[r.ID]; ok {
		switch {
		case v.slot < 0 && !slices.Contains(v.shut, r.ID): // it is this claim's own
			return verdict{word: "held"}
		case v.slot != run.Slot:
		case v.kept == run.Token: // the same request again, whose first reply was lost
			return verdict{word: grantedOutcome, run: run}
		case slices.Contains(v.ballots, run.Token): // nobody has heard of it yet
			run.Token = v.token
			g.Runs[r.ID] = run
			return verdict{word: grantedOutcome, run: run}
		case run.Trigger == "": // its lease has ended
			delete(g.Runs, r.ID)
		}
	}
	if r.Tick != nil {
		if from := max(toMicros(r.Tick.NotBefore), toMicros(r.Tick.At)); from > v.now {
			if s := r.Tick.Schedule; s != g.Digest && s != g.Digest2 { // announced by this claim: at its tick it would be too late for that
				g.mend(v.latest)
				g.know(s, false, v.now)
			}
			return verdict{word: "early", until: from}
		}
	}
	g.mend(v.latest)
	if g.unheard(r, v) {
		return g.held(v)
	}
	if r.Tick == nil {
		return g.claimSlot(r, owner, v)
	}
	g.know(r.Tick.Schedule, false, v.now)
	if d, over := g.decided(r, v); over {
		return d
	}
	if outcome, ok := readPause(g.Paused).stops(r.Tick, v.now); ok {
		return g.settle(r, v, outcome)
	}
	if deadline := toMicros(r.Tick.Deadline); deadline > 0 && v.now > deadline {
		return g.settle(r, v, r.Tick.IfLate)
	}
	return g.claimTick(r, owner, v)
}

// unheard opens the tick of a run again that was granted under this id and ended before anybody had heard of it, as soon as there is a row; until
// then it is true.
func (g *register) unheard(r Request, v view) (waits bool) {
	run, orphaned := g.Orphans[r.ID]
	if held, ok := g.Runs[r.ID]; ok && held.Trigger != "" { // and no majority has its row any more
		run, orphaned = held, true
	}
	if r.Abstain || r.Adopt != "" || !orphaned || run.Attempt != 1 {
		return false
	}
	if v.slot < 0 {
		return true
	}
	delete(g.Orphans, r.ID)
	delete(g.Runs, r.ID)
	if run.Tick > 0 {
		g.reopen(run.Tick, run.Slot, r.previous(), r.perTick())
	}
	return false
}

func (g *register) held(v view) verdict {
	until, who := v.holder(g, 0)
	return verdict{word: "held", until: until, holder: who}
}

// decided tells how a tick was, if it was.
func (g *register) decided(r Request, v view) (d verdict, over bool) {
	tick := r.Tick.At.Unix()
	e, known := g.Ticks[tick]
	open := known && e.State == reopened
	if !(tick <= g.Low && !open || tick*1e6 <= g.Since || known && e.State == decidedEntry) {
		return verdict{}, false
	}
	how, mine := "", false
	if g.Last == tick {
		how, mine = g.How, g.By == r.ID
	}
	if known {
		how = map[string]string{decidedEntry: e.How, partDecided: grantedOutcome, reopened: ""}[e.State]
	}
	if mine && how != grantedOutcome {
		return verdict{word: "settled", outcome: how}, true // again, the first reply was lost
	}
	until, who := v.holder(g, tick)
	return verdict{word: "decided", outcome: how, until: until, holder: who}, true
}

// grantedOutcome is the outcome of a tick that was granted.
const grantedOutcome = "granted"

func (g *register) settle(r Request, v view, outcome string) verdict {
	tick, prev := r.Tick.At.Unix(), r.previous()
	if g.began(tick) { // it ran, though not PerTick times: that is its outcome
		g.decide(tick, prev, grantedOutcome, r.ID, v.now)
		until, who := v.holder(g, tick)
		return verdict{word: "decided", outcome: grantedOutcome, until: until, holder: who}
	}
	g.decide(tick, prev, outcome, r.ID, v.now)
	if r.Tick.KeepOutcome {
		g.keepSettled(tick, v.now, outcome)
	}
	return verdict{word: "settled", outcome: outcome}
}

// keepSettled keeps how ticks were settled for whoever looks: who has settled them may die before it can tell.
func (g *register) keepSettled(tick, now int64, how string) {
	g.Settled = append(g.Settled, settled{tick, now, how})
	g.Settled = g.Settled[max(len(g.Settled)-mostSettled, 0):]
}

// told forgets settled ticks that were told of.
func (g *register) told(ticks []time.Time) {
	g.Settled = slices.DeleteFunc(g.Settled, func(s settled) bool { return slices.ContainsFunc(ticks, fromMicros(s.Tick*1e6).Equal) })
}

// began tells that an undecided tick has a grant that was not given back.
func (g *register) began(tick int64) bool { return len(g.Ticks[tick].Slots) > 0 }

// fits tells whether a slot may run a tick that is not decided: not one that did. back: it ran in all others, which are not known any more.
func (g *register) fits(r Request, slot int) bool {
	if r.Tick == nil {
		return true
	}
	e, known := g.Ticks[r.Tick.At.Unix()]
	if !known || len(e.Slots) == 0 {
		return true
	}
	return slices.Contains(e.Slots, slot) == (e.State == reopened)
}

func (g *register) claimTick(r Request, owner string, v view) verdict {
	tick, prev := r.Tick.At.Unix(), r.previous()
	e := g.Ticks[tick]
	used := slices.Compact(slices.Sorted(slices.Values(e.Slots)))
	back := g.began(tick) && e.State == reopened
	if !back && g.began(tick) && len(used) >= r.Tick.PerTick {
		return g.settle(r, v, "") // by a smaller number than those before said
	}
	if v.slot < 0 || !g.fits(r, v.slot) {
		if v.full && !g.began(tick) && r.Tick.IfHeld != "" && !(r.Tick.KeepFirst && g.follows(prev)) {
			return g.settle(r, v, r.Tick.IfHeld)
		}
		if v.slot >= 0 {
			return verdict{word: "slot"}
		}
	}
	granted := g.claimSlot(r, owner, v)
	if granted.word != grantedOutcome {
		return granted
	}
	switch {
	case back:
		left := slices.DeleteFunc(used, func(s int) bool { return s == v.slot })
		if len(left) == 0 {
			g.decide(tick, prev, grantedOutcome, r.ID, v.now)
		} else {
			g.Ticks[tick] = entry{Prev: prev, State: reopened, Slots: left}
		}
	case len(used)+1 >= r.Tick.PerTick:
		g.decide(tick, prev, grantedOutcome, r.ID, v.now)
	default:
		g.Ticks[tick] = entry{Prev: prev, State: partDecided, Slots: append(used, v.slot)}
		g.advance(v.now)
	}
	return granted
}

// claimSlot grants the row that the claimant has, and enters the run in the account.
func (g *register) claimSlot(r Request, owner string, v view) verdict {
	if v.slot < 0 {
		if v.full {
			return g.held(v)
		}
		return verdict{word: "held"}
	}
	run := runRow{Owner: owner, Slot: v.slot, Token: v.token, Lease: r.Lease.Microseconds(), Attempt: 1, Trigger: r.Trigger, Memo: r.Memo}
	if r.Tick != nil {
		run.Tick = r.Tick.At.Unix()
	}
	if r.Adopt != "" { // the orphan's tick, one attempt on; the ledger is not asked
		found, ok := g.Orphans[r.Adopt]
		if !ok {
			return verdict{word: "decided", outcome: "adopted"}
		}
		run.Attempt, run.Tick, run.Heir = found.Attempt+1, found.Tick, &orphan{r.Adopt, found}
		if run.Memo == "" {
			run.Memo = found.Memo
		}
		delete(g.Orphans, r.Adopt)
	}
	g.Runs[r.ID] = run
	return verdict{word: grantedOutcome, run: run}
}
