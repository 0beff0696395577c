package single

import (
	"fmt"
	"strconv"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/observed"
	"github.com/cronclave/cronclave/internal/lease/script"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

func (c *sender) compactGrant(r lease.Request, know observed.State) call {
	key := c.key(r.Lock)
	fold, was := newCompact(r, know.Longest, c.cfg.Owner, c.cfg.Idle)
	fold.keys = []string{key, script.Tombstone(key, r.ID)}
	args := script.AcquireCompactArgs{Floor: know.Floor, Free: was, Held: fold.held, Life: fold.life}
	return call{lock: r.Lock, id: r.ID, idle: c.cfg.Idle.Microseconds(), fold: fold, read: readCompactGrant}.
		with(c.scripts.AcquireCompact, fold.keys, args.Encode()...)
}

func (c *sender) compactRelease(r *lease.Request, fold *compact) call {
	args := script.ReleaseCompactArgs{Held: fold.token + fold.held, Free: fold.token + fold.free}
	return call{lock: r.Lock, id: r.ID, idle: c.cfg.Idle.Microseconds(), fold: fold, read: readCompactRelease}.
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
