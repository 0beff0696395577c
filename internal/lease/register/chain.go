package register

import (
	"maps"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
)

// mostFollowed bounds the ticks whose outcome a lock keeps. Beyond it the oldest are dropped.
const mostFollowed = mostEntries

// Followers are forgotten a day after they were last named. That time is updated at most once an hour.
const (
	noteFollower   = int64(time.Hour / time.Microsecond)
	forgetFollower = 24 * noteFollower
)

// A Follower is a job whose ticks follow the ticks of a lock, as in chain.lua.
type Follower struct {
	Used int64 `json:"used,omitempty"` // it needs no outcome of ticks up to this one any more
	Seen int64 `json:"seen"`           // about the time at which it was last named
}

// spoiled is the outcome of a tick with a run that did not end well.
const spoiled = -1

// The functions below have the rules and the names of chain.lua.

// endedThrough returns the tick up to which every one is decided, and has no run that goes on or waits for a recovery.
func (g *Register) endedThrough(now int64) int64 {
	through := g.low()
	before := func(tick int64) {
		if tick > 0 && tick <= through {
			through = tick - 1
		}
	}
	for tick, e := range g.Ticks {
		if e.State == lease.TickReopened && tick*1e6 > g.here(now)-noteFollower { // a tick that was given back before is not asked for any more
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

// comeDue makes ticks due that have ended.
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

// dropOutcomes forgets the outcomes that are used, and the oldest beyond the limit.
func (g *Register) dropOutcomes(cut int64) {
	maps.DeleteFunc(g.Outcomes, func(tick, _ int64) bool { return tick <= cut })
	ticks := slices.Sorted(maps.Keys(g.Outcomes))
	for _, tick := range ticks[:max(len(ticks)-mostFollowed, 0)] {
		delete(g.Outcomes, tick)
	}
}

// RecordOutcome records whether a tick has ended well.
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
	g.dropOutcomes(0)
}

// spoil records that a run of a tick was lost: the tick did not end well, unless the run is recovered.
func (g *Register) spoil(tick int64) {
	if tick > 0 && len(g.Followers) > 0 {
		if g.Outcomes == nil {
			g.Outcomes = map[int64]int64{}
		}
		g.Outcomes[tick] = spoiled
	}
}

// Follow answers a follower. used is the tick up to which it needs no outcome any more.
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
	g.dropOutcomes(cut)
	for tick, due := range g.Outcomes {
		if due > 0 {
			ended = append(ended, lease.Ended{Tick: clock.FromMicros(tick * 1e6), Due: clock.FromMicros(due)})
		}
	}
	lease.SortEnded(ended)
	return through, ended
}
