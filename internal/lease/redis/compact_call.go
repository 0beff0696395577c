package redis

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
	form, was := newCompact(r, know.Longest, c.cfg.Owner, c.cfg.Idle)
	form.keys = []string{key, script.Tombstone(key, r.ID)}
	args := script.AcquireCompactArgs{Floor: know.Floor, Free: was, Held: form.held, Life: form.life}
	return call{lock: r.Lock, id: r.ID, idle: c.cfg.Idle.Microseconds(), form: form, read: readCompactGrant}.
		withScript(c.scripts.AcquireCompact, form.keys, args.Append)
}

func (c *sender) compactRelease(r *lease.Request, form *compact) call {
	args := script.ReleaseCompactArgs{Held: form.token + form.held, Free: form.token + form.free}
	return call{lock: r.Lock, id: r.ID, idle: c.cfg.Idle.Microseconds(), form: form, read: readCompactRelease}.
		withScript(c.scripts.ReleaseCompact, form.keys[:1], args.Append)
}

// notCompact is the verdict if the lock is not compact, so that the request needs the full scripts.
const notCompact = "not compact"

// readCompactGrant decodes the reply of lua/acquire_compact.lua: Redis's time, and 1 if the request is granted.
func readCompactGrant(k call, raw []any) reply {
	k.form.token = transport.Text(raw[0])
	now, err := strconv.ParseInt(k.form.token, 10, 64)
	switch {
	case err != nil:
		return reply{err: transport.Unknown(fmt.Errorf("the server's clock: %w", err))}
	case transport.Number(raw[1]) == 0:
		return reply{verdict: notCompact, now: now}
	}
	return reply{verdict: "granted", now: now, floor: now, longest: k.form.longest, form: k.form}
}

// readCompactRelease decodes the reply of lua/release_compact.lua, which does not include Redis's time.
func readCompactRelease(_ call, raw []any) reply {
	if transport.Number(raw[0]) == 0 {
		return reply{verdict: notCompact}
	}
	return reply{verdict: "released"}
}
