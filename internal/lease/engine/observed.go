package engine

import (
	"strings"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// observation is what a reply told of a lock. Carried by later requests, it lets a server that has forgotten
// (FLUSHALL, restart without memory, failover that lost writes) know it again.
type observation struct {
	floor, longest, low int64
	ledger, paused      string        // as the scripts have them
	seen                time.Duration // local clock, before the request was sent
	permanent           bool
	compact             bool // when the newest reply was sent; this is a hint
}

// observed remembers every lock that this client has heard of.
type observed struct {
	mu    sync.Mutex
	locks map[string]observation
	sweep int // size of locks at which stale entries are dropped
}

// mostWitnessed bounds the locks that are remembered, but for those that do not expire: of more, some are forgotten, whichever.
const mostWitnessed = 200_000

// glitch is how far ahead of the server's clock a ledger may be, in microseconds; lua/state.lua has the same bound.
const glitch = 60e6

// stale reports whether the server may have dropped a lock for idleness: nothing was forgotten then. It keeps a
// lock for twice the longest lease at least, see save() in lua/state.lua.
func (k observation) stale(now, idle time.Duration) bool {
	kept := max(idle, 2*time.Duration(k.longest)*time.Microsecond)
	return !k.permanent && now-k.seen > kept/2
}

// of returns the observed state of a lock, if it still counts.
func (w *observed) of(lock string, clock func() time.Duration, idle time.Duration) observation {
	k, ok := w.remembers(lock)
	if !ok || !k.permanent && k.stale(clock(), idle) {
		return observation{}
	}
	return k
}

// remembers returns the state of a lock as last observed, whether or not it still counts.
func (w *observed) remembers(lock string) (k observation, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k, ok = w.locks[lock]
	return k, ok
}

// with returns the observed state after news has come.
func (k observation) with(news observation) observation {
	same := news.floor == k.floor && news.low == k.low
	news.paused = lease.NewerPause(k.paused, news.paused)
	switch {
	case same && news.seen < k.seen, news.floor <= k.floor && news.low <= k.low && !same:
		news.floor, news.low, news.ledger = k.floor, k.low, k.ledger
	case news.floor < k.floor || news.low < k.low: // the server has forgotten, and has learnt something else since
		news.floor, news.low = max(k.floor, news.floor), max(k.low, news.low)
		news.ledger = strings.Trim(k.ledger+";"+news.ledger, ";")
	default:
		return news
	}
	news.longest, news.seen = max(k.longest, news.longest), max(k.seen, news.seen)
	return news
}

// learn keeps the newest observed state. Replies may arrive out of order, and the reply of a server that has
// forgotten, and has not yet got the observed state back, is no news. So values that grow never shrink here,
// except where one was ahead of the server's clock. inUse says whether a lock that expires when idle starts its
// idle time anew.
func (w *observed) learn(lock string, k observation, idle time.Duration, now int64, inUse bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keep(lock, k, idle, now, inUse)
}

// overhear takes in a published message, which any user of the server could have invented. It adds only to the
// observed state of locks that this client has asked for itself. It never shortens the longest lease: a server
// that has lost its data waits so long for a holder.
func (w *observed) overhear(lock string, k observation, idle time.Duration, now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	own, used := w.locks[lock]
	if !used {
		return
	}
	k.permanent, k.longest = own.permanent, max(own.longest, k.longest)
	w.keep(lock, k, idle, now, true)
}

// keep is learn under mu.
func (w *observed) keep(lock string, k observation, idle time.Duration, now int64, inUse bool) {
	old, known := w.locks[lock]
	if old.stale(k.seen, idle) {
		old = observation{}
	}
	if old.low*1e6 > now+glitch {
		old.low, old.ledger = 0, ""
	}
	k.permanent = k.permanent || old.permanent
	if !inUse && !k.permanent {
		if !known {
			return
		}
		k.seen = old.seen
	}
	w.locks[lock] = old.with(k)
	w.bound(k.seen, idle)
}

// bound drops stale entries, and those beyond the limit. mu is held.
func (w *observed) bound(now, idle time.Duration) {
	if len(w.locks) <= max(w.sweep, 1000) {
		return
	}
	for name, known := range w.locks {
		if known.stale(now, idle) {
			delete(w.locks, name)
		}
	}
	for name, known := range w.locks {
		if len(w.locks) <= mostWitnessed*9/10 {
			break
		}
		if !known.permanent {
			delete(w.locks, name)
		}
	}
	w.sweep = max(min(2*len(w.locks), mostWitnessed), len(w.locks)+len(w.locks)/10)
}

// drop forgets the observed state of a lock that was removed on purpose.
func (w *observed) drop(lock string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.locks, lock)
}
