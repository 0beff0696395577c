// Package register has the rules of a lock in Go: the tick that may be granted, the recovery of runs whose holder died, the meaning of a pause and of
// a stop request. A quorum decides with them, and tests compare them with the scripts that decide on a single server. The rules are pure: they have
// no clock, no I/O and no randomness.
package register

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
)

// A Register has the final decisions about a lock: its ledger of ticks, the schedules that it knows, and its runs. A majority of the nodes of a
// quorum accepts it as a whole: see docs/decisions/017-quorum-register.md. The rules, and their names, are the same as in acquire.lua, release.lua
// and inspect.lua. Instants are in microseconds, ticks in seconds since 1970.
type Register struct {
	Low     int64           `json:"low,omitempty"` // every tick up to it is decided, but see From
	Ticks   map[int64]Entry `json:"ticks,omitempty"`
	Runs    map[string]Run  `json:"runs,omitempty"`    // by lease id: granted, and not ended
	Orphans map[string]Run  `json:"orphans,omitempty"` // by lease id: dead, and their outcome is not recorded
	Digest  string          `json:"digest,omitempty"`
	Since   int64           `json:"since,omitempty"`
	Digest2 string          `json:"digest2,omitempty"`
	Since2  int64           `json:"since2,omitempty"`
	Last    int64           `json:"last,omitempty"` // the tick decided last, its outcome, and the lease id that decided it
	How     string          `json:"how,omitempty"`
	By      string          `json:"by,omitempty"`
	Paused  string          `json:"paused,omitempty"` // as in pause.lua
	From    int64           `json:"from,omitempty"`   // as in state.lua; so is Behind
	Behind  int64           `json:"behind,omitempty"`
	Missed  Missed          `json:"missed,omitzero"`
	Rules   Rules           `json:"rules,omitzero"`

	Outcomes  map[int64]int64     `json:"outcomes,omitempty"`  // by tick: since when it and all earlier ones have ended; 0: not yet; spoiled: not well
	Followers map[string]Follower `json:"followers,omitempty"` // by name
	Settled   []Settled           `json:"settled,omitempty"`   // without a run, and not yet acknowledged: see [lease.Tick.KeepOutcome]

	began int64 // Since of the schedule of this request
}

// A Missed has the ticks after After and up to Through, which were settled as too late at the instant At: see acquire.lua.
type Missed struct {
	After   int64 `json:"after,omitempty"`
	Through int64 `json:"through,omitempty"`
	At      int64 `json:"at,omitempty"`
}

// Rules has the zone data of the schedule that was announced last, and the time since which it has been in use, if other data was used before.
type Rules struct {
	Hash  string `json:"hash,omitempty"`
	Since int64  `json:"since,omitempty"`
}

// A Settled is a tick that was settled, with the outcome and the time.
type Settled struct {
	Tick int64  `json:"tick"`
	At   int64  `json:"at"`
	How  string `json:"how"` // encoded as in [lease.NewSettlement]
}

const mostSettled = 100 // only the newest are kept

// An Entry is a tick that is decided, or given back, out of turn.
type Entry struct {
	Prev  int64  `json:"prev"`
	State string `json:"state"`           // as in state.lua
	Slots []int  `json:"slots,omitempty"` // of lease.TickPart and lease.TickReopened
	How   string `json:"how,omitempty"`   // of lease.TickDecided
}

// A Run is a lease that is accounted for: its holder is alive, or it is an orphan.
type Run struct {
	Owner   string   `json:"owner"`
	Slot    int      `json:"slot"`
	Token   int64    `json:"token"`
	Lease   int64    `json:"lease"`
	Tick    int64    `json:"tick,omitempty"`
	Attempt int      `json:"attempt"`
	Trigger string   `json:"trigger,omitempty"`
	Memo    string   `json:"memo,omitempty"`
	Adopted *Adopted `json:"heir,omitempty"` // the orphan that it has adopted, which comes back if the grant is undone

	EndedWell  bool   `json:"ended_well,omitempty"`  // its work had succeeded, by the last message of its holder
	Abandoned  bool   `json:"abandoned,omitempty"`   // the tick of the orphan stays decided, whatever its claimant requests
	Stopped    string `json:"stopped,omitempty"`     // the reason for which its holder is to stop
	StoppedFor int64  `json:"stopped_for,omitempty"` // the tick that it has to make room for, if any
}

// An Adopted is an orphan that another run recovers.
type Adopted struct {
	ID  string `json:"id"`
	Run Run    `json:"run"`
}

// Read decodes the value that the nodes keep for a register; "" is a new register. The error is [lease.ErrCorrupt] if no client can have written the
// value.
func Read(value string) (*Register, error) {
	g := &Register{}
	if value != "" {
		if err := json.Unmarshal([]byte(value), g); err != nil {
			return nil, fmt.Errorf("%w: %w", lease.ErrUnknown, lease.Refused(fmt.Errorf("read the register: %w: %w", lease.ErrCorrupt, err)))
		}
		if fault := g.findFault(); fault != "" {
			return nil, fmt.Errorf("%w: %w", lease.ErrUnknown, lease.Refused(fmt.Errorf("read the register: %w: %s", lease.ErrCorrupt, fault)))
		}
	}
	g.began = g.Since
	if g.Ticks == nil {
		g.Ticks = map[int64]Entry{}
	}
	if g.Runs == nil {
		g.Runs = map[string]Run{}
	}
	if g.Orphans == nil {
		g.Orphans = map[string]Run{}
	}
	return g, nil
}

// Value returns the register as the nodes keep it.
func (g *Register) Value() string {
	text, _ := json.Marshal(g) // maps, numbers and strings give no error
	return string(text)
}

const (
	dayTicks    = 86400
	mostEntries = 1000 // every claim reads them
)

func minuteAfter(now int64) int64 {
	return min(now, math.MaxInt64-lease.MinuteMicros) + lease.MinuteMicros
}

// mend corrects values that are ahead of the servers' clock by more than a minute: that clock was wrong for a while.
func (g *Register) mend(now int64) {
	bound := minuteAfter(now)
	if g.Low*1e6 > bound {
		if g.From == g.Low {
			g.From = now / 1e6
		}
		g.Low = now / 1e6
	}
	if g.Since > bound {
		g.Since = now
	}
	g.began = g.Since
	if g.Since2 > bound {
		g.Since2 = now
	}
}

// low returns the tick up to which every one is decided. While [Register.Low] is from the ticks of another zone, the newest decided tick is in Since.
func (g *Register) low() int64 {
	if g.From > 0 && g.From == g.Low {
		return min(g.Low, g.Since/1e6)
	}
	return g.Low
}

func (g *Register) setLow(low int64) {
	switch {
	case low >= g.Low:
		g.Low, g.From = low, 0
	case low*1e6 > g.Since:
		g.Since = low * 1e6
	}
}

// Decided returns the tick up to which the schedule of the request has no undecided one.
func (g *Register) Decided() int64 { return max(g.low(), g.began/1e6) }

// here returns, in microseconds, the greatest name that a tick up to an instant can have.
func (g *Register) here(now int64) int64 { return now - g.Behind*1e6 }

// leaveZone forgets the ticks of a zone, and returns the instant up to which they were decided.
func (g *Register) leaveZone() int64 {
	most := max(g.low(), g.Since/1e6)
	for tick, e := range g.Ticks {
		if e.State != lease.TickReopened {
			most = max(most, tick)
		}
	}
	clear(g.Ticks)
	g.Missed = Missed{} // its ticks have other numbers in another zone
	g.Low = max(g.Low, most)
	g.From = g.Low
	return most * 1e6
}

// know records a schedule. A new one begins now, so that an edited schedule never fires in retrospect. Two are known at a time, so that a roll-out in
// which replicas disagree loses no tick of either. announced is true for a request of a replica that starts.
func (g *Register) know(schedule string, announced bool, now int64) {
	if schedule == g.Digest {
		return
	}
	zone, fresh, left := lease.ZoneOf(schedule), g.here(now), g.Since
	moves := g.Digest != "" && zone != lease.ZoneOf(g.Digest)
	switch {
	case schedule == g.Digest2 && !announced && !moves:
		g.began = g.Since2
		return
	case schedule == g.Digest2 && !announced:
		fresh = g.Since2
	case moves && zone == lease.ZoneOf(g.Digest2):
		fresh = max(fresh, g.Since2)
	}
	if moves {
		left = g.leaveZone()
	}
	g.Digest2, g.Since2, g.Digest, g.Since, g.began = g.Digest, left, schedule, fresh, fresh
}

// followsDecided reports whether the tick before one is decided. prev is that tick.
func (g *Register) followsDecided(prev int64) bool { return prev <= g.low() || prev*1e6 <= g.began }

// decide settles a tick for good.
func (g *Register) decide(tick, prev int64, how, by string, now int64) {
	switch {
	case tick > g.low() && g.followsDecided(prev):
		g.setLow(tick)
	case tick > g.low():
		g.Ticks[tick] = Entry{Prev: prev, State: lease.TickDecided, How: how}
	}
	if tick <= g.low() {
		delete(g.Ticks, tick)
	}
	g.advance(now)
	g.Last, g.How, g.By = tick, how, by
}

// advance drops the decided ticks that follow low without a gap, and bounds the rest.
func (g *Register) advance(now int64) {
	for moved := true; moved; {
		moved = false
		for tick, e := range g.Ticks {
			if e.State == lease.TickDecided && tick > g.low() && g.followsDecided(e.Prev) {
				g.setLow(tick)
				moved = true
			}
			if e.State != lease.TickReopened && tick <= g.low() {
				delete(g.Ticks, tick)
			}
		}
	}
	for tick, e := range g.Ticks {
		if e.State == lease.TickReopened && tick < g.here(now)/1e6-dayTicks { // so old a tick is never asked for again
			delete(g.Ticks, tick)
		}
	}
	ticks := slices.Sorted(maps.Keys(g.Ticks))
	for _, tick := range ticks[:max(len(ticks)-mostEntries, 0)] { // behind a gap that stays open
		if g.Ticks[tick].State != lease.TickReopened {
			g.setLow(max(g.low(), tick))
		}
		delete(g.Ticks, tick)
	}
}

// reopen opens the tick of a run that never started. If a fan-out was decided, it opens only the slot of the run.
func (g *Register) reopen(tick int64, slot int, prev int64, perTick int) {
	e, known := g.Ticks[tick]
	again := Entry{Prev: prev, State: lease.TickReopened}
	if known {
		again.Prev = e.Prev
	}
	switch {
	case known && e.State == lease.TickPart:
		again.Slots = slices.DeleteFunc(slices.Clone(e.Slots), func(s int) bool { return s == slot })
		if len(again.Slots) > 0 {
			again.State = lease.TickPart
		}
	case perTick > 1:
		again.Slots = []int{slot}
		if known && e.State == lease.TickReopened {
			again.Slots = append(slices.Clone(e.Slots), slot)
		}
	}
	g.Ticks[tick] = again
}

// Inspect announces a schedule, and settles ticks up to through that are past every deadline. before is the tick up to which all were decided before
// that; since is the time since which the announced zone data has been in use.
func (g *Register) Inspect(r lease.InspectRequest, through, now, latest int64) (before, since int64) {
	g.mend(latest)
	if r.Schedule != "" {
		g.Behind = r.Behind
		g.know(r.Schedule, true, now)
		since = g.announceRules(r.ZoneRules, now)
	}
	if r.SettleOutcome != "" && lease.ZoneOf(r.SettleSchedule) != lease.ZoneOf(g.Digest) {
		g.know(r.SettleSchedule, false, now)
	}
	before = g.Decided()
	if through <= before || now <= clock.ToMicros(r.SettleDeadline) {
		return before, since
	}
	some := false // some of them were decided before
	for tick, e := range g.Ticks {
		some = some || tick <= through && e.State != lease.TickReopened
		if tick <= through && (e.State != lease.TickReopened || tick > before) {
			delete(g.Ticks, tick)
		}
	}
	if !some && lease.ZoneOf(g.Digest) != "" {
		g.Missed = Missed{before, through, now}
	}
	g.setLow(through)
	g.advance(now)
	if how := r.SettleRecord(); how != "" {
		g.keepSettled(through, now, fmt.Sprintf("%d\n%s", before, how))
	}
	return before, since
}

func (g *Register) announceRules(hash string, now int64) (since int64) {
	if hash == "" {
		return 0
	}
	if known := g.Rules.Hash; known != hash {
		g.Rules = Rules{Hash: hash}
		if known != "" {
			g.Rules.Since = now
		}
	}
	return g.Rules.Since
}
