// Package observed has the newest token and ledger of each lock that a client has seen in replies. Later requests carry them, so that a server
// that has forgotten knows them again. It does no I/O.
package observed

import (
	"strings"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// State is the content of a reply about a lock. Carried by later requests, it lets a server that has forgotten
// (FLUSHALL, restart without memory, failover that lost writes) know it again.
type State struct {
	Floor, Longest, Low int64
	Ledger, Paused      string        // as the scripts have them
	Seen                time.Duration // local clock, before the request was sent
	Permanent           bool
	Compact             bool // when the newest reply was sent; this is a hint
}

// Cache has the state of every lock that a client has asked for. It is safe for concurrent use.
type Cache struct {
	mu    sync.Mutex
	locks map[string]State
	sweep int // size of locks at which stale entries are dropped
}

// mostLocks bounds the locks that are remembered, but for those that do not expire: of more, some are forgotten, whichever.
const mostLocks = 200_000

// New returns an empty cache.
func New() *Cache { return &Cache{locks: map[string]State{}} }

// Stale reports whether the server may have dropped a lock for idleness: nothing was forgotten then. It keeps a
// lock for twice the longest lease at least, see save() in lua/state.lua.
func (k State) Stale(now, idle time.Duration) bool {
	kept := max(idle, 2*time.Duration(k.Longest)*time.Microsecond)
	return !k.Permanent && now-k.Seen > kept/2
}

// Of returns the state of a lock, if it still counts.
func (w *Cache) Of(lock string, clock func() time.Duration, idle time.Duration) State {
	k, ok := w.Last(lock)
	if !ok || !k.Permanent && k.Stale(clock(), idle) {
		return State{}
	}
	return k
}

// Last returns the state of a lock as last observed, whether or not it still counts.
func (w *Cache) Last(lock string) (k State, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k, ok = w.locks[lock]
	return k, ok
}

// Len is the number of locks that are remembered.
func (w *Cache) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.locks)
}

// with returns the state after news has come.
func (k State) with(news State) State {
	same := news.Floor == k.Floor && news.Low == k.Low
	news.Paused = lease.NewerPause(k.Paused, news.Paused)
	switch {
	case same && news.Seen < k.Seen, news.Floor <= k.Floor && news.Low <= k.Low && !same:
		news.Floor, news.Low, news.Ledger = k.Floor, k.Low, k.Ledger
	case news.Floor < k.Floor || news.Low < k.Low: // the server has forgotten, and has learnt something else since
		news.Floor, news.Low = max(k.Floor, news.Floor), max(k.Low, news.Low)
		news.Ledger = strings.Trim(k.Ledger+";"+news.Ledger, ";")
	default:
		return news
	}
	news.Longest, news.Seen = max(k.Longest, news.Longest), max(k.Seen, news.Seen)
	return news
}

// Learn keeps the newest state. Replies may arrive out of order, and the reply of a server that has
// forgotten, and has not yet got the observed state back, is no news. So values that grow never shrink here,
// except where one was ahead of the server's clock. inUse says whether a lock that expires when idle starts its
// idle time anew.
func (w *Cache) Learn(lock string, k State, idle time.Duration, now int64, inUse bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keep(lock, k, idle, now, inUse)
}

// LearnPublished takes in a published message, which any user of the server could have invented. It adds only to the
// state of locks that this client has asked for itself. It never shortens the longest lease: a server
// that has lost its data waits so long for a holder.
func (w *Cache) LearnPublished(lock string, k State, idle time.Duration, now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	own, used := w.locks[lock]
	if !used {
		return
	}
	k.Permanent, k.Longest = own.Permanent, max(own.Longest, k.Longest)
	w.keep(lock, k, idle, now, true)
}

// keep is Learn under mu.
func (w *Cache) keep(lock string, k State, idle time.Duration, now int64, inUse bool) {
	old, known := w.locks[lock]
	if old.Stale(k.Seen, idle) {
		old = State{}
	}
	if old.Low*1e6 > now+lease.MinuteMicros { // lua/state.lua has the same bound
		old.Low, old.Ledger = 0, ""
	}
	k.Permanent = k.Permanent || old.Permanent
	if !inUse && !k.Permanent {
		if !known {
			return
		}
		k.Seen = old.Seen
	}
	w.locks[lock] = old.with(k)
	w.bound(k.Seen, idle)
}

// bound drops stale entries, and those beyond the limit. mu is held.
func (w *Cache) bound(now, idle time.Duration) {
	if len(w.locks) <= max(w.sweep, 1000) {
		return
	}
	for name, known := range w.locks {
		if known.Stale(now, idle) {
			delete(w.locks, name)
		}
	}
	for name, known := range w.locks {
		if len(w.locks) <= mostLocks*9/10 {
			break
		}
		if !known.Permanent {
			delete(w.locks, name)
		}
	}
	w.sweep = max(min(2*len(w.locks), mostLocks), len(w.locks)+len(w.locks)/10)
}

// Delete deletes the state of a lock that was removed on purpose.
func (w *Cache) Delete(lock string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.locks, lock)
}

// Set replaces the state of a lock. Tests use it: a server has to withstand any state.
func (w *Cache) Set(lock string, k State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.locks[lock] = k
}
