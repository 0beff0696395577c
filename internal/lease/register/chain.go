package register

import (
	"maps"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
)

// mostFollowed bounds the ticks whose outcome a lock keeps: then the oldest are dropped.
const mostFollowed = mostEntries

// followers are forgotten a day after they were last named; that is noted once an hour.
const (
	noteFollower   = int64(time.Hour / time.Microsecond)
	forgetFollower = 24 * noteFollower
)

// Follower is a job whose ticks follow those of a lock, as chain.lua has it.
type Follower struct {
	Used int64 `json:"used,omitempty"` // up to this tick it needs no outcome any more
	Seen int64 `json:"seen"`           // about when it was last named
}

// spoiled is the outcome of a tick with a run that did not end well.
const spoiled = -1

// The functions below have the rules, and the names, of chain.lua.

// endedThrough is the tick up to which every one is decided, and no run of one goes on or waits to be carried on.
func (g *Register) endedThrough(now int64) int64 {
	through := g.low()
	before := func(tick int64) {
		if tick > 0 && tick <= through {
			through = tick - 1
		}
	}
	for tick, e := range g.Ticks {
		if e.State == lease.TickReopened && tick*1e6 > g.here(now)-noteFollower { // else it is not asked for any more
			before(tick)
		}
	}
	for _, run := range g.Runs {
		before(run.Tick)
	}
	for _, run := range g.Orphans {
		before(run.Tick)
	}
	return through
}

// comeDue makes ticks that have ended due.
func (g *Register) comeDue(now int64) (through int64) {
	through = g.endedThrough(now)
	for tick, due := range g.Outcomes {
		switch {
		case tick > through:
		case due == 0:
			g.Outcomes[tick] = now
		case due == spoiled:
			delete(g.Outcomes, tick)
		}
	}
	return through
}

// keep forgets the outcomes that are used, and the oldest of too many.
func (g *Register) keep(cut int64) {
	maps.DeleteFunc(g.Outcomes, func(tick, _ int64) bool { return tick <= cut })
	ticks := slices.Sorted(maps.Keys(g.Outcomes))
	for _, tick := range ticks[:max(len(ticks)-mostFollowed, 0)] {
		delete(g.Outcomes, tick)
	}
}

// RecordOutcome keeps how a tick has ended.
func (g *Register) RecordOutcome(tick int64, well bool, perTick int, now int64) {
	if g.Outcomes == nil {
		g.Outcomes = map[int64]int64{}
	}
	switch due, known := g.Outcomes[tick]; {
	case !well:
		g.Outcomes[tick] = spoiled
	case perTick <= 1 || !known || due != spoiled:
		g.Outcomes[tick] = 0
	}
	g.comeDue(now)
	g.keep(0)
}

// spoil notes that a run of a tick was lost: it did not end well, unless it is carried on.
func (g *Register) spoil(tick int64) {
	if tick > 0 && len(g.Followers) > 0 {
		if g.Outcomes == nil {
			g.Outcomes = map[int64]int64{}
		}
		g.Outcomes[tick] = spoiled
	}
}

// Follow answers a follower that needs nothing up to the tick used any more.
func (g *Register) Follow(name string, used, now int64) (through int64, ended []lease.Ended) {
	if g.Followers == nil {
		g.Followers = map[string]Follower{}
	}
	f, known := g.Followers[name]
	if used > 0 {
		f.Used = used
	}
	if !known || f.Seen < now-noteFollower || f.Seen > now {
		f.Seen = now
	}
	g.Followers[name] = f
	maps.DeleteFunc(g.Followers, func(_ string, f Follower) bool { return f.Seen <= now-forgetFollower })
	cut := f.Used
	for _, other := range g.Followers {
		cut = min(cut, other.Used)
	}
	through = g.comeDue(now)
	g.keep(cut)
	for tick, due := range g.Outcomes {
		if due > 0 {
			ended = append(ended, lease.Ended{Tick: clock.FromMicros(tick * 1e6), Due: clock.FromMicros(due)})
		}
	}
	lease.SortEnded(ended)
	return through, ended
}
