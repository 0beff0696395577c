package single

import (
	"strconv"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
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
func plain(r lease.Request) bool {
	return r.FirstTry && r.Slots == 1 && r.Tick == nil && r.Trigger == "" && r.Memo == "" && r.Adopt == "" && !r.Permanent && !r.Abstain && r.Delay == 0
}

// newCompact returns the form of a lock after a request; was is the text behind the token now, and longest the
// longest lease that the lock has had.
func newCompact(r lease.Request, longest int64, owner string, idle time.Duration) (f *compact, was string) {
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
