// Package rules implements the rules of a lock in Go: which ticks may be granted, how runs of dead holders are recovered, and what a pause and a stop
// request change. A quorum uses these rules. Tests compare them with the Lua scripts for a single master. The rules are pure functions: they use no
// clock, no I/O and no randomness.
package rules

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/cronclave/cronclave/internal/lease"
)

// A Register is the state of a lock on a quorum: its ledger of ticks, its newest schedules, and its runs. A majority of the nodes accepts a new
// register as one value: see docs/decisions/017-quorum-register.md. The rules and the field names are the same as in acquire.lua, release.lua and
// inspect.lua. Instants are in microseconds, ticks in seconds since 1970.
type Register struct {
	Low     int64           `json:"low,omitempty"` // all ticks up to Low are decided, unless From is equal to Low: see low()
	Ticks   map[int64]Entry `json:"ticks,omitempty"`
	Runs    map[string]Run  `json:"runs,omitempty"`    // by lease id; granted and not ended
	Orphans map[string]Run  `json:"orphans,omitempty"` // by lease id; runs whose holder died or handed them over, until they are recorded or adopted
	Digest  string          `json:"digest,omitempty"`  // the current schedule; its ticks up to the instant Since count as decided
	Since   int64           `json:"since,omitempty"`
	Digest2 string          `json:"digest2,omitempty"` // the previous schedule; its ticks up to the instant Since2 count as decided
	Since2  int64           `json:"since2,omitempty"`
	Last    int64           `json:"last,omitempty"` // the tick that was decided last; How is its outcome, and By the lease id that decided it
	How     string          `json:"how,omitempty"`
	By      string          `json:"by,omitempty"`
	Paused  string          `json:"paused,omitempty"` // an encoded [lease.PauseRecord]
	From    int64           `json:"from,omitempty"`   // equal to Low if Low is a tick of an earlier time zone; the method low then uses Since
	Behind  int64           `json:"behind,omitempty"` // the [lease.Tick.Behind] of the newest request, in seconds
	Missed  Missed          `json:"missed,omitzero"`
	Rules   Rules           `json:"rules,omitzero"`

	Outcomes  map[int64]int64     `json:"outcomes,omitempty"`  // by tick: the time from which this and all earlier ticks had ended; 0 if one has not; or [spoiled]
	Followers map[string]Follower `json:"followers,omitempty"` // by name
	Settled   []Settled           `json:"settled,omitempty"`   // settlements that no replica has recorded: see [lease.Tick.KeepOutcome]

	began int64 // Since, or Since2 if the request is for the previous schedule
}

// A Missed describes the ticks later than After, up to Through, which were settled as too late at the instant At. By other time zone data, such a
// tick may be due only after At. In this case decidedRuling reopens it.
type Missed struct {
	After   int64 `json:"after,omitempty"`
	Through int64 `json:"through,omitempty"`
	At      int64 `json:"at,omitempty"`
}

// Rules identifies the time zone data of the newest announced schedule. Since is the time at which this data replaced other data, or 0.
type Rules struct {
	Hash  string `json:"hash,omitempty"`
	Since int64  `json:"since,omitempty"`
}

// A Settled is a stored [lease.Settlement].
type Settled struct {
	Tick int64  `json:"tick"`
	At   int64  `json:"at"`
	How  string `json:"how"` // encoded as in [lease.NewSettlement]
}

const mostSettled = 100 // older settlements are dropped

// An Entry is the state of a tick that [Register.Low] does not describe: decided although an older tick is undecided, granted in part, or reopened.
type Entry struct {
	Prev  int64  `json:"prev"`
	State string `json:"state"`           // as in state.lua
	Slots []int  `json:"slots,omitempty"` // set for lease.TickPart and lease.TickReopened
	How   string `json:"how,omitempty"`   // set for lease.TickDecided
}

// A Run is the run of a held lease, or an orphan. Only leases that are accounted for have a Run: see [lease.Request.Accounted].
type Run struct {
	Owner   string   `json:"owner"`
	Slot    int      `json:"slot"`
	Token   int64    `json:"token"`
	Lease   int64    `json:"lease"`
	Tick    int64    `json:"tick,omitempty"`
	Attempt int      `json:"attempt"`
	Trigger string   `json:"trigger,omitempty"`
	Memo    string   `json:"memo,omitempty"`
	Adopted *Adopted `json:"heir,omitempty"` // the orphan that the run has adopted; restored if the grant is undone

	EndedWell  bool   `json:"ended_well,omitempty"`  // the holder has reported that the work succeeded
	Abandoned  bool   `json:"abandoned,omitempty"`   // the tick of the orphan stays decided, even if the claimant withdraws the claim
	Stopped    string `json:"stopped,omitempty"`     // the reason why the holder is asked to stop
	StoppedFor int64  `json:"stopped_for,omitempty"` // the tick that needs the slot of the stopped run, if any
}

// An Adopted is an orphan that another run recovers, with the orphan's lease id.
type Adopted struct {
	ID  string `json:"id"`
	Run Run    `json:"run"`
}

// Read decodes a stored register. It returns an empty register for "", and an error with [lease.ErrCorrupt] for a damaged value.
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

// Value encodes the register for storage.
func (g *Register) Value() string {
	text, _ := json.Marshal(g) // json.Marshal can't fail for maps, numbers and strings
	return string(text)
}

const (
	dayTicks    = 86400
	mostEntries = 1000 // limited because every claim reads all entries
)

func minuteAfter(now int64) int64 {
	return min(now, math.MaxInt64-lease.MinuteMicros) + lease.MinuteMicros
}

// mend corrects instants and ticks that are more than a minute ahead of the nodes' clocks, because they were written while the clocks were wrong.
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

// low returns the tick up to which all ticks are decided. After a change of the time zone, [Register.Low] is a tick of the old zone, so low uses
// Since instead.
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

// Decided returns the tick up to which the schedule of the request has no undecided ticks, except reopened ones.
func (g *Register) Decided() int64 { return max(g.low(), g.began/1e6) }

// here returns the greatest [lease.Tick.At], in microseconds, of the ticks that are due at the instant now.
func (g *Register) here(now int64) int64 { return now - g.Behind*1e6 }

// leaveZone forgets the ticks of the current zone: other zones number them differently. It returns the newest decided tick in microseconds.
func (g *Register) leaveZone() int64 {
	most := max(g.low(), g.Since/1e6)
	for tick, e := range g.Ticks {
		if e.State != lease.TickReopened {
			most = max(most, tick)
		}
	}
	clear(g.Ticks)
	g.Missed = Missed{} // Missed has ticks of the zone that the lock leaves
	g.Low = max(g.Low, most)
	g.From = g.Low
	return most * 1e6
}

// know records the schedule of a request. A new schedule begins now, so that an edited schedule never runs ticks of the past. The register has the
// two newest schedules, so that no tick is lost during a rolling update. A schedule that a starting replica has announced always becomes current.
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

// followsDecided reports whether all ticks up to prev are decided.
func (g *Register) followsDecided(prev int64) bool { return prev <= g.low() || prev*1e6 <= g.began }

// decide records the final outcome of a tick.
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

// advance moves low over decided ticks that follow it without a gap. It drops old reopened ticks, and the oldest entries beyond mostEntries.
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
		if e.State == lease.TickReopened && tick < g.here(now)/1e6-dayTicks { // replicas no longer request a tick that is older than a day
			delete(g.Ticks, tick)
		}
	}
	ticks := slices.Sorted(maps.Keys(g.Ticks))
	for _, tick := range ticks[:max(len(ticks)-mostEntries, 0)] { // drop the oldest entries: undecided ticks before them then count as decided
		if g.Ticks[tick].State != lease.TickReopened {
			g.setLow(max(g.low(), tick))
		}
		delete(g.Ticks, tick)
	}
}

// reopen reopens the tick of a run that never started. If the tick may have several grants, only the slot of the run is reopened.
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

// Inspect records the announced schedule. If the settle deadline has passed, it settles the undecided ticks up to through. before is the value of
// [Register.Decided] before the settlement, and since is the Since of [Rules].
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
	if through <= before || now <= lease.ToMicros(r.SettleDeadline) {
		return before, since
	}
	some := false // whether some of these ticks were decided before
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

// A View is the state of a lock's rows, according to the votes of the nodes that one claimant has received.
type View struct {
	Now    int64 // the lower bound of the median of the nodes' clocks
	Latest int64 // the upper bound of the median of the nodes' clocks
	Slot   int   // the slot of the row that a majority gave to the claimant; -1 for none
	Token  int64 // the ballot of the claimant
	Kept   int64 // the token of the claimant's row; less than Token if the nodes gave the row to an earlier request
	// Ballots has all ballots of this claim. Some nodes may have accepted a register with one of them.
	Ballots []int64
	Full    bool // each slot is held by another lease
	Rows    []NodeRow
	Unheard int      // the number of nodes whose state is unknown
	Shut    []string // the lease ids of runs that can't have a live row on a majority
}

// holder returns the end of the lease that ends first, and its owner. If tick is not 0, it considers only the leases of this tick.
func (v View) holder(g *Register, tick int64) (until int64, owner string) {
	for _, row := range v.Rows {
		if tick != 0 && g.Runs[row.ID].Tick != tick {
			continue
		}
		if until == 0 || row.Expiry < until {
			until, owner = row.Expiry, row.Owner
		}
	}
	return until, owner
}

// A NodeRow has the votes of the nodes for one lease id in one slot.
type NodeRow struct {
	Slot         int
	ID, Owner    string
	Token, Lease int64
	Expiry       int64 // the latest expiry on the nodes that vote for the row
	Votes        int
	State        string // RowEntered if any node reports it, RowTentative if all nodes do
}

// The states of a row, as in quorum.lua. The state is "" for a lease that is not accounted for, and for a row that a renewal restored.
const (
	RowTentative = "tentative" // the claim may not have written its run to the register yet
	RowEntered   = "entered"   // the run is or was in the register
)

// Over reports whether the run of a row was removed from the register.
func (r NodeRow) Over(g *Register) bool {
	_, running := g.Runs[r.ID]
	return r.State == RowEntered && !running
}
