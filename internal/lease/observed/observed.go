// Package observed keeps the newest token and ledger of each lock that a client has seen in replies. Later requests carry them, so that a server that
// has forgotten gets them back. It does no I/O.
package observed

import (
	"strings"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A State is the content of a reply about a lock. Later requests carry it to a server that has forgotten the lock (FLUSHALL, a restart without its
// data, a failover that lost writes).
type State struct {
	Floor, Longest, Low int64
	Ledger, Paused      string        // as in the scripts
	Seen                time.Duration // the local clock before the request was sent
	Permanent           bool
	Compact             bool // the lock was compact when the newest reply was sent; this is a hint
}

// A Cache has the state of every lock that a client has asked for. It is safe for concurrent use.
type Cache struct {
	mu    sync.Mutex
	locks map[string]State
	sweep int // the size of locks at which stale entries are dropped
}

// mostLocks bounds the locks that are remembered, except locks that do not expire. Beyond it, any of them are forgotten.
const mostLocks = 200_000

// New returns an empty cache.
func New() *Cache { return &Cache{locks: map[string]State{}} }

// Stale reports whether the server may have dropped a lock because it was idle, in which case nothing was forgotten. The server keeps a lock for at
// least twice its longest lease, see save() in lua/state.lua.
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

// Last returns the last observed state of a lock, whether or not it still counts.
func (w *Cache) Last(lock string) (k State, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k, ok = w.locks[lock]
	return k, ok
}

// Len returns the number of locks that are remembered.
func (w *Cache) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.locks)
}

// mergedWith returns the state after news.
func (k State) mergedWith(news State) State {
	same := news.Floor == k.Floor && news.Low == k.Low
	news.Paused = lease.NewerPause(k.Paused, news.Paused)
	switch {
	case same && news.Seen < k.Seen, news.Floor <= k.Floor && news.Low <= k.Low && !same:
		news.Floor, news.Low, news.Ledger = k.Floor, k.Low, k.Ledger
	case news.Floor < k.Floor || news.Low < k.Low: // the server has forgotten, and has learned something else since
		news.Floor, news.Low = max(k.Floor, news.Floor), max(k.Low, news.Low)
		news.Ledger = strings.Trim(k.Ledger+";"+news.Ledger, ";")
	default:
		return news
	}
	news.Longest, news.Seen = max(k.Longest, news.Longest), max(k.Seen, news.Seen)
	return news
}

// Learn records the newest state. Replies may arrive out of order, and the reply of a server that has forgotten, and has not got the observed state
// back yet, must not count. So values that grow never shrink here, unless one was ahead of the server's clock. inUse is false if the reply does not
// restart the idle time of a lock that expires when idle.
func (w *Cache) Learn(lock string, k State, idle time.Duration, now int64, inUse bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.learnState(lock, k, idle, now, inUse)
}

// LearnPublished records a published message, which any user of the server could have invented. It only adds to the state of locks that this client
// has asked for itself. It never shortens the longest lease, because a server that has lost its data waits so long for a holder.
func (w *Cache) LearnPublished(lock string, k State, idle time.Duration, now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	own, used := w.locks[lock]
	if !used {
		return
	}
	k.Permanent, k.Longest = own.Permanent, max(own.Longest, k.Longest)
	w.learnState(lock, k, idle, now, true)
}

// learnState is [Cache.Learn] while the caller holds mu.
func (w *Cache) learnState(lock string, k State, idle time.Duration, now int64, inUse bool) {
	old, known := w.locks[lock]
	if old.Stale(k.Seen, idle) {
		old = State{}
	}
	if old.Low*1e6 > now+lease.MinuteMicros { // the server's clock ran ahead when this was observed; mend() in state.lua has the same bound
		old.Low, old.Ledger = 0, ""
	}
	k.Permanent = k.Permanent || old.Permanent
	if !inUse && !k.Permanent {
		if !known {
			return
		}
		k.Seen = old.Seen
	}
	w.locks[lock] = old.mergedWith(k)
	w.dropExcess(k.Seen, idle)
}

// dropExcess drops stale entries, and entries beyond the limit. The caller holds mu.
func (w *Cache) dropExcess(now, idle time.Duration) {
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

// Set replaces the state of a lock. It is for tests: a server has to withstand any state.
func (w *Cache) Set(lock string, k State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.locks[lock] = k
}
