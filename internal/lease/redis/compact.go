package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// isPlain reports whether a request sets nothing but a new lease id, the length of the lease, and possibly AnyLimit and Channel.
func isPlain(r lease.Request) bool {
	return r.FirstTry && r.Slots == 1 && r.Tick == nil && r.Trigger == "" && r.Memo == "" && r.Adopt == "" && !r.Permanent && !r.Abstain && r.Delay == 0
}

// newCompact returns the states of a lock after the grant of a request. longest is the longest lease so far, and was is the text after the token
// before the grant.
func newCompact(r lease.Request, longest int64, owner string, idle time.Duration) (f *compact, was string) {
	f = &compact{lease: r.Lease.Microseconds()}
	f.longest = max(longest, f.lease)
	was = freeFor(longest)
	if f.free = was; f.longest != longest {
		f.free = freeFor(f.longest)
	}
	f.held = " " + strconv.FormatInt(f.lease, 10) + f.free[len(" 0"):] + " " + r.ID + "\n" + owner
	f.life = (max(idle.Microseconds(), 2*f.longest) + f.lease) / 1000 // long enough for the free lock, because a release does not change the time to live
	return f, was
}

// freeFor returns the text after the token of a free lock, given its longest lease.
func freeFor(longest int64) string { return " 0 " + strconv.FormatInt(longest, 10) }

func (c *sender) compactGrant(r lease.Request, know lease.Observed) call {
	key := c.key(r.Lock)
	form, was := newCompact(r, know.Longest, c.cfg.Owner, c.cfg.Idle)
	form.keys = []string{key, Tombstone(key, r.ID)}
	return call{lock: r.Lock, id: r.ID, idle: c.cfg.Idle.Microseconds(), form: form, read: readCompactGrant}.
		withScript(c.scripts.AcquireCompact, form.keys, "", digits(know.Floor), was, form.held, form.life)
}

func (c *sender) compactRelease(r *lease.Request, form *compact) call {
	return call{lock: r.Lock, id: r.ID, idle: c.cfg.Idle.Microseconds(), form: form, read: readCompactRelease}.
		withScript(c.scripts.ReleaseCompact, form.keys[:1], form.token+form.held, form.token+form.free)
}

// notCompact is the verdict for a lock that is not compact. The request then needs the full scripts.
const notCompact = "not compact"

// readCompactGrant decodes the reply of lua/acquire_compact.lua: Redis's time, and 1 if the request is granted.
func readCompactGrant(k call, raw []any) reply {
	k.form.token = Text(raw[0])
	now, err := strconv.ParseInt(k.form.token, 10, 64)
	switch {
	case err != nil:
		return reply{err: Unknown(fmt.Errorf("the server's clock: %w", err))}
	case Number(raw[1]) == 0:
		return reply{verdict: notCompact, now: now}
	}
	return reply{verdict: "granted", now: now, floor: now, longest: k.form.longest, form: k.form}
}

// readCompactRelease decodes the reply of lua/release_compact.lua, which does not include Redis's time.
func readCompactRelease(_ call, raw []any) reply {
	if Number(raw[0]) == 0 {
		return reply{verdict: notCompact}
	}
	return reply{verdict: "released"}
}

// releaseCompact releases a lease that [Store.AcquireCompact] granted. The verdict is notCompact if the lock is not compact any more.
func (c *Store) releaseCompact(ctx context.Context, r lease.ReleaseRequest, form *compact, begun time.Duration) (verdict string, err error) {
	k := c.compactRelease(&r.Row.Request, form)
	k.asked = begun
	got := c.execOne(ctx, k)
	return got.verdict, got.err
}
