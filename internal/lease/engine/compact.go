package engine

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/cronclave/cronclave/internal/lease/observed"
	"github.com/cronclave/cronclave/internal/lease/script"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// compact is what a plain request makes of a lock that is compact: see acquire_compact.lua. The scripts for such a lock are a few lines that compare and
// replace strings, and these are made here.
type compact struct {
	keys           []string // the lock's is the first
	lease, longest int64    // microseconds: the request's, and the longest that the lock has had then
	token          string   // once it is granted
	held, free     string   // the fields behind the token while the lock is held, and when it is free again
	life           int64    // for how many milliseconds the server remembers the lock
}

// plain reports whether a request names nothing but its owner and the length of the lease, and its lease id is
// new to the server.
func plain(r Request) bool {
	return r.FirstTry && r.Slots == 1 && r.Tick == nil && r.Trigger == "" && r.Memo == "" && r.Adopt == "" && !r.Permanent && !r.Abstain && r.Delay == 0
}

// newCompact returns the form of a lock after a request; was is the text behind the token now, and longest the
// longest lease that the lock has had.
func newCompact(r Request, longest int64, owner string, idle time.Duration) (f *compact, was string) {
	f = &compact{lease: r.Lease.Microseconds()}
	f.longest = max(longest, f.lease)
	was = freeFor(longest)
	if f.free = was; f.longest != longest {
		f.free = freeFor(f.longest)
	}
	f.held = " " + strconv.FormatInt(f.lease, 10) + f.free[len(" 0"):] + " " + r.ID + "\n" + owner
	f.life = (max(idle.Microseconds(), 2*f.longest) + f.lease) / 1000 // a release leaves it as it is
	return f, was
}

// freeFor is how a lock ends that is free, and has had leases of this length at most.
func freeFor(longest int64) string { return " 0 " + strconv.FormatInt(longest, 10) }

// acquireCompact asks for a lock that was compact when it was heard of last; ok is false if it is for lua/acquire.lua to answer.
func (c *single) acquireCompact(ctx context.Context, r Request) (a Answer, ok bool) {
	if c.cfg.AckedReplicas > 0 || !plain(r) || c.ready() != nil {
		return a, false
	}
	know, _ := c.seen.Last(r.Lock)
	if !know.Compact || r.Validate() != nil {
		return a, false
	}
	now := c.cfg.Clock()
	if know.Stale(now, c.cfg.Idle) {
		return a, false
	}
	k := c.compactGrant(r, know)
	k.asked = now
	got := c.execOne(ctx, k)
	switch {
	case got.err != nil:
		return Answer{Verdict: Unknown, ID: r.ID, Err: fmt.Errorf("acquire %q: %w", r.Lock, got.err)}, true
	case got.verdict == notCompact:
		return a, false
	}
	return c.grant(r, got, Answer{Verdict: Granted, ID: r.ID}), true
}

// releaseCompact ends a lease that [Client.acquireCompact] has got, if its lock is compact still; else the verdict is notCompact.
func (c *single) releaseCompact(ctx context.Context, r releaseCall, fold *compact, begun time.Duration) (verdict string, err error) {
	k := c.compactRelease(r, fold)
	k.asked = begun
	got := c.execOne(ctx, k)
	return got.verdict, got.err
}

func (c *single) compactGrant(r Request, know observed.State) call {
	key := c.key(r.Lock)
	fold, was := newCompact(r, know.Longest, c.cfg.Owner, c.cfg.Idle)
	fold.keys = []string{key, script.Tombstone(key, r.ID)}
	args := script.AcquireCompactArgs{Floor: know.Floor, Free: was, Held: fold.held, Life: fold.life}
	return call{lock: r.Lock, id: r.ID, idle: c.cfg.Idle.Microseconds(), fold: fold, read: readCompactGrant}.
		with(c.scripts.AcquireCompact, fold.keys, args.Encode()...)
}

func (c *single) compactRelease(r releaseCall, fold *compact) call {
	args := script.ReleaseCompactArgs{Held: fold.token + fold.held, Free: fold.token + fold.free}
	return call{lock: r.lock, id: r.id, idle: c.cfg.Idle.Microseconds(), fold: fold, read: readCompactRelease}.
		with(c.scripts.ReleaseCompact, fold.keys[:1], args.Encode()...)
}

// notCompact is the verdict on a lock for which the other scripts are needed.
const notCompact = "not folded"

// readCompactGrant takes in the reply to a request of lua/acquire_compact.lua: now, and whether it is granted.
func readCompactGrant(k call, raw []any) reply {
	k.fold.token = transport.Text(raw[0])
	now, err := strconv.ParseInt(k.fold.token, 10, 64)
	switch {
	case err != nil:
		return reply{err: transport.Unknown(fmt.Errorf("the server's clock: %w", err))}
	case transport.Number(raw[1]) == 0:
		return reply{verdict: notCompact, now: now}
	}
	return reply{verdict: "granted", now: now, floor: now, longest: k.fold.longest, fold: k.fold}
}

// readCompactRelease takes in the reply to a request of lua/release_compact.lua, which does not carry the
// time.
func readCompactRelease(_ call, raw []any) reply {
	if transport.Number(raw[0]) == 0 {
		return reply{verdict: notCompact}
	}
	return reply{verdict: "released"}
}
