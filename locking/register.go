package locking

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
)

// register is what a quorum decides once and for all about a lock: the ledger, the schedules that it knows, and the account of
// runs. A majority of nodes accepts it as a whole: see docs/design.md, D13. The rules are those of lua/acquire.lua, release.lua and look.lua, and
// have their names. Instants are microseconds, ticks seconds since 1970.
type register struct {
	Low     int64             `json:"low,omitempty"` // every tick up to it is decided
	Ticks   map[int64]entry   `json:"ticks,omitempty"`
	Runs    map[string]runRow `json:"runs,omitempty"`    // by lease id: granted, and not ended
	Orphans map[string]runRow `json:"orphans,omitempty"` // by lease id: dead, and their outcome is not recorded
	Digest  string            `json:"digest,omitempty"`
	Since   int64             `json:"since,omitempty"`
	Digest2 string            `json:"digest2,omitempty"`
	Since2  int64             `json:"since2,omitempty"`
	Last    int64             `json:"last,omitempty"` // the tick decided last, how, and by which lease id
	How     string            `json:"how,omitempty"`
	By      string            `json:"by,omitempty"`
	Paused  string            `json:"paused,omitempty"` // as in lua/pause.lua

	Outcomes  map[int64]int64     `json:"outcomes,omitempty"`  // tick -> since when it and all before have ended; 0: not yet; spoiled: not well
	Followers map[string]follower `json:"followers,omitempty"` // by name
	Settled   []settled           `json:"settled,omitempty"`   // without a run, and nobody has told of them yet, see [Tick.KeepOutcome]
}

// settled is how a tick was settled, and when.
type settled struct {
	Tick int64  `json:"tick"`
	At   int64  `json:"at"`
	How  string `json:"how"` // as newSettlement has it
}

const mostSettled = 100 // the newest

// entry is a tick that is decided, or given back, out of turn.
type entry struct {
	Prev  int64  `json:"prev"`
	State string `json:"state"`           // as in lua/state.lua
	Slots []int  `json:"slots,omitempty"` // of partDecided and reopened
	How   string `json:"how,omitempty"`   // of decidedEntry
}

const (
	decidedEntry = "done" // as How says
	partDecided  = "part" // granted in Slots, and open to others
	reopened     = "open" // given back before its start: to all slots, or only to Slots
)

// runRow is a run of the account.
type runRow struct {
	Owner   string  `json:"owner"`
	Slot    int     `json:"slot"`
	Token   int64   `json:"token"`
	Lease   int64   `json:"lease"`
	Tick    int64   `json:"tick,omitempty"`
	Attempt int     `json:"attempt"`
	Trigger string  `json:"trigger,omitempty"`
	Memo    string  `json:"memo,omitempty"`
	Heir    *orphan `json:"heir,omitempty"` // what it adopted, in case that it is given back

	EndedWell  bool   `json:"ended_well,omitempty"`  // see [Lease.EndedWell]
	Stopped    string `json:"stopped,omitempty"`     // why its holder is to stop, see [Client.Stop]
	StoppedFor int64  `json:"stopped_for,omitempty"` // and the tick that it is to make room for, if any
}

// orphan is a run that another adopted.
type orphan struct {
	ID  string `json:"id"`
	Run runRow `json:"run"`
}

func readRegister(value string) (*register, error) {
	g := &register{}
	if value != "" {
		if err := json.Unmarshal([]byte(value), g); err != nil {
			return nil, unknown(hopeless{fmt.Errorf("read the register: %w: %w", ErrCorrupt, err)})
		}
		if fault := g.fault(); fault != "" {
			return nil, unknown(hopeless{fmt.Errorf("read the register: %w: %s", ErrCorrupt, fault)})
		}
	}
	if g.Ticks == nil {
		g.Ticks = map[int64]entry{}
	}
	if g.Runs == nil {
		g.Runs = map[string]runRow{}
	}
	if g.Orphans == nil {
		g.Orphans = map[string]runRow{}
	}
	return g, nil
}

// value is the register as the nodes keep it.
func (g *register) value() string {
	text, _ := json.Marshal(g) // of maps, numbers and strings: no error
	return string(text)
}

const (
	minuteMicros = 60e6
	dayTicks     = 86400
	mostEntries  = 1000 // every claim reads them
)

func minuteAfter(now int64) int64 { return min(now, math.MaxInt64-minuteMicros) + minuteMicros }

// mend takes back what is ahead of the servers' clock by more than a minute: a glitch of it, corrected since.
func (g *register) mend(now int64) {
	bound := minuteAfter(now)
	if g.Low*1e6 > bound {
		g.Low = now / 1e6
	}
	if g.Since > bound {
		g.Since = now
	}
	if g.Since2 > bound {
		g.Since2 = now
	}
}

// know takes a schedule in. One that is new begins now: an edited schedule never fires in retrospect. Two are known at a time, so that a
// roll-out in which replicas disagree loses no tick of either. announced: said by a replica that starts.
func (g *register) know(schedule string, announced bool, now int64) {
	switch {
	case schedule == g.Digest:
	case schedule == g.Digest2 && !announced:
		g.Since = g.Since2
	default:
		g.Digest2, g.Since2, g.Digest, g.Since = g.Digest, g.Since, schedule, now
	}
}

// follows tells whether the tick before one is decided.
func (g *register) follows(prev int64) bool { return prev <= g.Low || prev*1e6 <= g.Since }

// decide settles a tick for good.
func (g *register) decide(tick, prev int64, how, by string, now int64) {
	switch {
	case tick > g.Low && g.follows(prev):
		g.Low = tick
	case tick > g.Low:
		g.Ticks[tick] = entry{Prev: prev, State: decidedEntry, How: how}
	}
	if tick <= g.Low {
		delete(g.Ticks, tick)
	}
	g.advance(now)
	g.Last, g.How, g.By = tick, how, by
}

// advance drops what follows low without a gap and is decided, and bounds the rest.
func (g *register) advance(now int64) {
	for moved := true; moved; {
		moved = false
		for tick, e := range g.Ticks {
			if e.State == decidedEntry && tick > g.Low && g.follows(e.Prev) {
				g.Low, moved = tick, true
			}
			if e.State != reopened && tick <= g.Low {
				delete(g.Ticks, tick)
			}
		}
	}
	for tick, e := range g.Ticks {
		if e.State == reopened && tick < now/1e6-dayTicks { // and never asked for again
			delete(g.Ticks, tick)
		}
	}
	ticks := slices.Sorted(maps.Keys(g.Ticks))
	for _, tick := range ticks[:max(len(ticks)-mostEntries, 0)] { // behind a gap that nobody closed
		if g.Ticks[tick].State != reopened {
			g.Low = max(g.Low, tick)
		}
		delete(g.Ticks, tick)
	}
}

// reopen makes the tick of a run that never started open again. Of a fan-out that was decided, only its slot is.
func (g *register) reopen(tick int64, slot int, prev int64, perTick int) {
	e, known := g.Ticks[tick]
	again := entry{Prev: prev, State: reopened}
	if known {
		again.Prev = e.Prev
	}
	switch {
	case known && e.State == partDecided:
		again.Slots = slices.DeleteFunc(slices.Clone(e.Slots), func(s int) bool { return s == slot })
		if len(again.Slots) > 0 {
			again.State = partDecided
		}
	case perTick > 1:
		again.Slots = []int{slot}
		if known && e.State == reopened {
			again.Slots = append(slices.Clone(e.Slots), slot)
		}
	}
	g.Ticks[tick] = again
}

// end takes a run out of the account. undo: it never began, so its tick is open again.
func (g *register) end(id string, undo bool, prev int64, perTick int) (changed bool) {
	run, held := g.Runs[id]
	if !held {
		var orphaned bool
		if run, orphaned = g.Orphans[id]; !orphaned {
			return false
		}
	}
	switch {
	case undo && held && run.Heir != nil: // the orphan waits for another heir, unless this one was to stop: the first reason is the one
		of := run.Heir.Run
		of.Stopped = cmp.Or(of.Stopped, run.Stopped)
		g.Orphans[run.Heir.ID] = of
	case undo && run.Attempt > 1:
		return false // an heir's lease that ended: its orphan has the tick
	case undo && run.Tick > 0:
		g.reopen(run.Tick, run.Slot, prev, perTick)
	}
	delete(g.Runs, id)
	delete(g.Orphans, id)
	return true
}

// leave makes an orphan of a run, unless it is one already. attempt is the last one that has begun.
func (g *register) leave(id string, attempt int) {
	run, held := g.Runs[id]
	delete(g.Runs, id)
	if !held || run.Trigger == "" {
		return
	}
	run.Heir, run.Attempt = nil, attempt
	g.Orphans[id] = run
}

// mourn takes the dead out of the account of runs, which a majority has shut up to a token. Those with a trigger are orphans until they are buried.
func (g *register) mourn(dead []string, upTo int64) {
	for _, id := range dead {
		run, ok := g.Runs[id]
		if !ok || run.Token > upTo {
			continue
		}
		delete(g.Runs, id)
		if run.Trigger != "" {
			run.Heir = nil
			g.Orphans[id] = run
			if !run.EndedWell {
				g.spoil(run.Tick)
			}
		}
	}
}

// look announces a schedule, and settles ticks that are past every deadline, which is kept if how tells the outcome; before is up to which one they were decided.
func (g *register) look(schedule string, through, deadline int64, how string, now, latest int64) (before int64) {
	g.mend(latest)
	if schedule != "" {
		g.know(schedule, true, now)
	}
	before = max(g.Low, g.Since/1e6)
	if through > before && now > deadline {
		g.Low = through
		maps.DeleteFunc(g.Ticks, func(tick int64, e entry) bool { return tick <= through && (e.State != reopened || tick > before) })
		g.advance(now)
		if how != "" {
			g.keepSettled(through, now, fmt.Sprintf("%d\n%s", before, how))
		}
	}
	return before
}
