package rules

import (
	"maps"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// mostFollowed is the maximum number of outcomes that a lock keeps for followers. The oldest are dropped first.
const mostFollowed = mostEntries

// A follower is forgotten a day after its last request. [Follower.Seen] is updated at most once an hour, because each update writes the register.
const (
	noteFollower   = int64(time.Hour / time.Microsecond)
	forgetFollower = 24 * noteFollower
)

// A Follower is a lock whose ticks depend on the outcomes of this lock.
type Follower struct {
	Used int64 `json:"used,omitempty"` // the newest tick whose outcome the follower no longer needs
	Seen int64 `json:"seen"`           // the approximate time of the follower's last request, in microseconds
}

// spoiled is the value in [Register.Outcomes] of a tick with a run that did not succeed.
const spoiled = -1

// chain.lua has the same rules as the functions below.

// endedThrough returns the newest tick up to which all ticks have ended. A tick has ended if it is decided and has neither a run nor an orphan.
func (g *Register) endedThrough(now int64) int64 {
	through := g.low()
	before := func(tick int64) {
		if tick > 0 && tick <= through {
			through = tick - 1
		}
	}
	for tick, e := range g.Ticks {
		if e.State == lease.TickReopened && tick*1e6 > g.here(now)-noteFollower { // an older reopened tick is ignored, because replicas no longer request it
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

// comeDue sets the due time of outcomes whose ticks have ended, so that followers get them, and drops the spoiled ones.
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

// dropOutcomes drops the outcomes of ticks up to cut, and the oldest outcomes beyond mostFollowed.
func (g *Register) dropOutcomes(cut int64) {
	maps.DeleteFunc(g.Outcomes, func(tick, _ int64) bool { return tick <= cut })
	ticks := slices.Sorted(maps.Keys(g.Outcomes))
	for _, tick := range ticks[:max(len(ticks)-mostFollowed, 0)] {
		delete(g.Outcomes, tick)
	}
}

// RecordOutcome records whether a run of a tick has succeeded. A tick with several grants keeps the worst outcome.
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

// spoil records that a run of a tick was lost. The tick then counts as failed, unless a recovery of the run succeeds.
func (g *Register) spoil(tick int64) {
	if tick > 0 && len(g.Followers) > 0 {
		if g.Outcomes == nil {
			g.Outcomes = map[int64]int64{}
		}
		g.Outcomes[tick] = spoiled
		g.dropOutcomes(0)
	}
}

// Follow records a request of a follower. It returns the ticks that succeeded, and the tick up to which all ticks have ended. used is the newest tick
// whose outcome the follower no longer needs, or 0 if unknown. A new follower of a full lock is refused with [lease.ErrTooManyFollowers].
func (g *Register) Follow(name string, used, now int64) (through int64, ended []lease.Ended, err error) {
	for other, f := range g.Followers {
		switch {
		case f.Seen > minuteAfter(now): // written while the clocks were wrong
			g.Followers[other] = Follower{Used: f.Used, Seen: now}
		case other != name && f.Seen <= now-forgetFollower:
			delete(g.Followers, other)
		}
	}
	f, known := g.Followers[name]
	switch {
	case !known && len(g.Followers) >= lease.MaxFollowers:
		return 0, nil, lease.ErrTooManyFollowers
	case g.Followers == nil:
		g.Followers = map[string]Follower{}
	}
	if used > 0 {
		f.Used = used
	}
	if !known || f.Seen < now-noteFollower {
		f.Seen = now
	}
	g.Followers[name] = f
	cut := f.Used
	for _, other := range g.Followers {
		cut = min(cut, other.Used)
	}
	through = g.comeDue(now)
	g.dropOutcomes(cut)
	for tick, due := range g.Outcomes {
		if due > 0 {
			ended = append(ended, lease.Ended{Tick: lease.FromMicros(tick * 1e6), Due: lease.FromMicros(due)})
		}
	}
	lease.SortEnded(ended)
	return through, ended, nil
}
