package redis

import (
	"strconv"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A compact is the state of a compact lock before and after a plain request: see acquire_compact.lua. The scripts for compact locks only compare and
// replace strings. This file builds these strings.
type compact struct {
	keys           []string // the first is the key of the lock
	lease, longest int64    // in microseconds: the lease of the request, and the longest lease of the lock after it
	token          string   // set once the request is granted
	held, free     string   // the fields after the token, while the lock is held and after the release
	life           int64    // the time, in milliseconds, after which Redis expires the lock
}

// isPlain reports whether a request sets only a new lease id, the length of the lease, and possibly AnyLimit or Channel.
func isPlain(r lease.Request) bool {
	return r.FirstTry && r.Slots == 1 && r.Tick == nil && r.Trigger == "" && r.Memo == "" && r.Adopt == "" && !r.Permanent && !r.Abstain && r.Delay == 0
}

// newCompact returns the state of a lock before and after a request. longest is the longest lease so far, and was is the current text after the
// token.
func newCompact(r lease.Request, longest int64, owner string, idle time.Duration) (f *compact, was string) {
	f = &compact{lease: r.Lease.Microseconds()}
	f.longest = max(longest, f.lease)
	was = freeFor(longest)
	if f.free = was; f.longest != longest {
		f.free = freeFor(f.longest)
	}
	f.held = " " + strconv.FormatInt(f.lease, 10) + f.free[len(" 0"):] + " " + r.ID + "\n" + owner
	f.life = (max(idle.Microseconds(), 2*f.longest) + f.lease) / 1000 // a release does not change the expiry
	return f, was
}

// freeFor returns the text after the token of a free lock, given its longest lease.
func freeFor(longest int64) string { return " 0 " + strconv.FormatInt(longest, 10) }
