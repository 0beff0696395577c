package locking

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Conclude is [Lease.Release] with word of how the work ended, for the locks whose ticks follow those of this one. The lock keeps it until all
// followers have used it: see [LookRequest.Follower]. The outcome of a tick is that of its last lease; of one with several grants the worst.
func (l *Lease) Conclude(ctx context.Context, well bool) error {
	if l.tick == 0 {
		return l.Release(ctx)
	}
	return l.release(ctx, releaseCall{outcome: flag(well)})
}

// EndedWell has the lock know that the work has ended well, when it is over, and before the lease is released: if the holder dies now, the orphan that it
// leaves tells so ([Row.EndedWell]). followed has those who follow its tick told as well, as [Lease.Conclude] does. An error tells that the server may not know.
func (l *Lease) EndedWell(ctx context.Context, followed bool) error {
	c := l.client
	if c.quorum != nil {
		return c.quorum.endedWell(ctx, l, followed)
	}
	got := c.exec(ctx, []call{c.call(c.scripts.ended, l.lock, l.id, l.permanent, l.perTick, flag(followed))})[0]
	switch {
	case got.verdict == "noted":
		return nil
	case got.verdict == "late":
		got.err = fmt.Errorf("%w: the request reached the server too late", ErrUnknown)
	}
	return fmt.Errorf("tell that the work under a lease of %q has ended: %w", l.lock, orDefault(got.err, ErrLost))
}

// endedWell enters it in the register.
func (q *quorum) endedWell(ctx context.Context, l *Lease, followed bool) error {
	known, err := q.amend(ctx, l, func(g *register, run *runRow, now int64) {
		run.EndedWell = true
		if followed && run.Tick > 0 {
			g.conclude(run.Tick, true, l.perTick, now)
		}
	})
	if err == nil && !known {
		return fmt.Errorf("tell that the work under a lease of %q has ended: %w", l.lock, ErrLost)
	}
	return err
}

// Ended is a tick that has ended well, since Due together with all before it: each is decided, and no lease for it is held, or waits as an
// orphan to be carried on.
type Ended struct{ Tick, Due time.Time }

// mostFollowed bounds the ticks whose outcome a lock keeps: then the oldest are dropped.
const mostFollowed = mostEntries

// followers are forgotten a day after they were last named; that is noted once an hour.
const (
	noteFollower   = int64(time.Hour / time.Microsecond)
	forgetFollower = 24 * noteFollower
)

func (r LookRequest) validate() error {
	if strings.ContainsAny(r.Follower, " ;\t\n") {
		return fmt.Errorf("follower %q: it must be without blanks, semicolons and line breaks", r.Follower)
	}
	if strings.ContainsAny(r.SettleOutcome+r.SettleSchedule, ";\n") {
		return fmt.Errorf("outcome %q and schedule %q: they must have neither semicolons nor line breaks", r.SettleOutcome, r.SettleSchedule)
	}
	return nil
}

// followed is what a lock tells its followers.
func (s *State) followed(got reply) {
	s.Through = fromMicros(got.number(6) * 1e6)
	list := got.list(7)
	for i := 0; i+1 < len(list); i += 2 {
		s.Ended = append(s.Ended, Ended{fromMicros(number(list[i]) * 1e6), fromMicros(number(list[i+1]))})
	}
	sortEnded(s.Ended)
}

func sortEnded(ended []Ended) {
	slices.SortFunc(ended, func(a, b Ended) int { return a.Tick.Compare(b.Tick) })
}

// follower is whose ticks follow those of a lock, as lua/chain.lua has it.
type follower struct {
	Used int64 `json:"used,omitempty"` // up to this tick it needs no outcome any more
	Seen int64 `json:"seen"`           // about when it was last named
}

// spoiled is the outcome of a tick with a run that did not end well.
const spoiled = -1

// What follows has the rules, and the names, of lua/chain.lua.

// endedThrough is the tick up to which every one is decided, and no run of one goes on or waits to be carried on.
func (g *register) endedThrough(now int64) int64 {
	through := g.Low
	before := func(tick int64) {
		if tick > 0 && tick <= through {
			through = tick - 1
		}
	}
	for tick, e := range g.Ticks {
		if e.State == reopened && tick*1e6 > now-noteFollower { // else nobody asks for it any more
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

// comeDue has what has ended come due.
func (g *register) comeDue(now int64) (through int64) {
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
func (g *register) keep(cut int64) {
	maps.DeleteFunc(g.Outcomes, func(tick, _ int64) bool { return tick <= cut })
	ticks := slices.Sorted(maps.Keys(g.Outcomes))
	for _, tick := range ticks[:max(len(ticks)-mostFollowed, 0)] {
		delete(g.Outcomes, tick)
	}
}

// conclude keeps how a tick has ended.
func (g *register) conclude(tick int64, well bool, perTick int, now int64) {
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
func (g *register) spoil(tick int64) {
	if tick > 0 && len(g.Followers) > 0 {
		if g.Outcomes == nil {
			g.Outcomes = map[int64]int64{}
		}
		g.Outcomes[tick] = spoiled
	}
}

// follow is asked by a follower that has used what is up to a tick.
func (g *register) follow(name string, used, now int64) (through int64, ended []Ended) {
	if g.Followers == nil {
		g.Followers = map[string]follower{}
	}
	f, known := g.Followers[name]
	if used > 0 {
		f.Used = used
	}
	if !known || f.Seen < now-noteFollower || f.Seen > now {
		f.Seen = now
	}
	g.Followers[name] = f
	maps.DeleteFunc(g.Followers, func(_ string, f follower) bool { return f.Seen <= now-forgetFollower })
	cut := f.Used
	for _, other := range g.Followers {
		cut = min(cut, other.Used)
	}
	through = g.comeDue(now)
	g.keep(cut)
	for tick, due := range g.Outcomes {
		if due > 0 {
			ended = append(ended, Ended{fromMicros(tick * 1e6), fromMicros(due)})
		}
	}
	sortEnded(ended)
	return through, ended
}
