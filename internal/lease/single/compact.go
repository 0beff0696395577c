package single

import (
	"strconv"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A compact is the state of a compact lock before and after a plain request: see acquire_compact.lua. The scripts for such a lock only compare and
// replace strings, which are made here.
type compact struct {
	keys           []string // the key of the lock is the first
	lease, longest int64    // in microseconds: the lease of the request, and the longest lease of the lock then
	token          string   // set once it is granted
	held, free     string   // the fields after the token while the lock is held, and when it is free again
	life           int64    // the time, in milliseconds, for which the server remembers the lock
}

// isPlain reports whether a request has nothing but an owner and the length of the lease, and a lease id that is new to the server.
func isPlain(r lease.Request) bool {
	return r.FirstTry && r.Slots == 1 && r.Tick == nil && r.Trigger == "" && r.Memo == "" && r.Adopt == "" && !r.Permanent && !r.Abstain && r.Delay == 0
}

// newCompact returns the form of a lock for a request. was is the text after the token now; longest is the longest lease that the lock has had.
func newCompact(r lease.Request, longest int64, owner string, idle time.Duration) (f *compact, was string) {
	f = &compact{lease: r.Lease.Microseconds()}
	f.longest = max(longest, f.lease)
	was = freeFor(longest)
	if f.free = was; f.longest != longest {
		f.free = freeFor(f.longest)
	}
	f.held = " " + strconv.FormatInt(f.lease, 10) + f.free[len(" 0"):] + " " + r.ID + "\n" + owner
	f.life = (max(idle.Microseconds(), 2*f.longest) + f.lease) / 1000 // a release does not change it
	return f, was
}

// freeFor returns the text after the token of a free lock whose longest lease had this length.
func freeFor(longest int64) string { return " 0 " + strconv.FormatInt(longest, 10) }
