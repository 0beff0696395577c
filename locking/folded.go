package locking

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// folded is what a plain request makes of a lock that is folded: see lua/folded_grant.lua. The scripts for such a lock are a few lines that compare and
// replace strings, and these are made here.
type folded struct {
	keys           []string // the lock's is the first
	lease, longest int64    // microseconds: the request's, and the longest that the lock has had then
	token          string   // once it is granted
	held, free     string   // what follows the token while the lock is held, and when it is free again
	life           int64    // for how many milliseconds the server remembers the lock
}

// plain tells whether a request says nothing but who asks and for how long, and its lease id is new to the server.
func (r Request) plain() bool {
	return r.firstTry && r.Slots == 1 && r.Tick == nil && r.Trigger == "" && r.Memo == "" && r.Adopt == "" && !r.Permanent && !r.Abstain && r.Delay == 0
}

// newFolded is what a request makes of a lock; was is what follows the token now, and longest the longest lease that the lock has had.
func newFolded(r Request, longest int64, owner string, idle time.Duration) (f *folded, was string) {
	f = &folded{lease: r.Lease.Microseconds()}
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

// digits is a token, or an instant, as those scripts have it: of 16 digits. A number that has them is sent as it is.
func digits(micros int64) any {
	if micros >= 1e15 {
		return micros
	}
	return fmt.Sprintf("%016d", micros)
}

// acquireFolded asks for a lock that was folded when it was heard of last; ok is false if it is for lua/acquire.lua to answer.
func (c *Client) acquireFolded(ctx context.Context, r Request) (a Answer, ok bool) {
	if c.quorum != nil || c.cfg.AckedReplicas > 0 || !r.plain() || c.ready() != nil {
		return a, false
	}
	know, _ := c.seen.remembers(r.Lock)
	if !know.folded || r.validate() != nil {
		return a, false
	}
	now := c.cfg.Clock()
	if know.stale(now, c.cfg.Idle) {
		return a, false
	}
	k := c.foldedGrant(r, know)
	k.asked = now
	got := c.execOne(ctx, k)
	switch {
	case got.err != nil:
		return Answer{Verdict: Unknown, ID: r.ID, Err: fmt.Errorf("acquire %q: %w", r.Lock, got.err)}, true
	case got.verdict == notFolded:
		return a, false
	}
	return c.grant(r, got, Answer{Verdict: Granted, ID: r.ID}), true
}

// releaseFolded ends a lease that [Client.acquireFolded] has got, if its lock is folded still; else the verdict is notFolded.
func (c *Client) releaseFolded(ctx context.Context, r releaseCall, begun time.Duration) (verdict string, err error) {
	k := c.foldedFree(r)
	k.asked = begun
	got := c.execOne(ctx, k)
	return got.verdict, got.err
}

func (c *Client) foldedGrant(r Request, know knowledge) call {
	key := c.key(r.Lock)
	fold, was := newFolded(r, know.longest, c.cfg.Owner, c.cfg.Idle)
	fold.keys = []string{key, tombstone(key, r.ID)}
	return call{lock: r.Lock, id: r.ID, idle: c.cfg.Idle.Microseconds(), fold: fold}.
		with(c.scripts.foldedGrant, fold.keys, "", digits(know.floor), was, fold.held, fold.life)
}

func (c *Client) foldedFree(r releaseCall) call {
	return call{lock: r.lock, id: r.id, idle: c.cfg.Idle.Microseconds(), fold: r.fold}.
		with(c.scripts.foldedFree, r.fold.keys[:1], r.fold.token+r.fold.held, r.fold.token+r.fold.free)
}

// notFolded is the verdict on a lock for which the other scripts are needed.
const notFolded = "not folded"

// readFoldedGrant takes in the reply to a request of lua/folded_grant.lua: now, and whether it is granted.
func readFoldedGrant(k call, raw []any) reply {
	k.fold.token = text(raw[0])
	now, err := strconv.ParseInt(k.fold.token, 10, 64)
	switch {
	case err != nil:
		return reply{err: unknown(fmt.Errorf("the server's clock: %w", err))}
	case number(raw[1]) == 0:
		return reply{verdict: notFolded, now: now}
	}
	return reply{verdict: "granted", now: now, floor: now, longest: k.fold.longest, fold: k.fold}
}

// readFoldedFree takes in the reply to a request of lua/folded_free.lua, which does not tell the time.
func readFoldedFree(_ call, raw []any) reply {
	if number(raw[0]) == 0 {
		return reply{verdict: notFolded}
	}
	return reply{verdict: "released"}
}
