// Package observed caches the newest state of each lock that a client has seen in replies. Later requests carry this state, so that a Redis that has
// lost its data gets it back. The package does no I/O.
package lease

import (
	"strings"
	"sync"
	"time"
)

// A Observed is the state of a lock in a reply. Later requests carry it to Redis, which may have lost the lock's data by FLUSHALL, a restart, or a
// failover.
type Observed struct {
	Floor, Longest, Low int64
	Ledger, Paused      string        // as in the scripts
	Seen                time.Duration // the local clock before the request was sent
	Permanent           bool
	Compact             bool // the newest reply showed a compact lock, which may have changed since
}

// A ObservedCache has the state of every lock that a client uses. It is safe for concurrent use.
type ObservedCache struct {
	mu    sync.Mutex
	locks map[string]Observed
	sweep int // the number of locks at which stale entries are dropped
}

// mostLocks bounds the number of cached locks. Beyond it, arbitrary locks are dropped, except permanent ones.
const mostLocks = 200_000

// NewObservedCache returns an empty cache.
func NewObservedCache() *ObservedCache { return &ObservedCache{locks: map[string]Observed{}} }

// Stale reports whether the lock may have expired in Redis because it was idle. An expired lock is not lost data, so its state must not be restored.
// Redis keeps a lock for at least twice its longest lease: see save() in lua/state.lua.
func (k Observed) Stale(now, idle time.Duration) bool {
	kept := max(idle, 2*time.Duration(k.Longest)*time.Microsecond)
	return !k.Permanent && now-k.Seen > kept/2
}

// Of returns the state of a lock, or the zero State if it is stale.
func (w *ObservedCache) Of(lock string, clock func() time.Duration, idle time.Duration) Observed {
	k, ok := w.Last(lock)
	if !ok || !k.Permanent && k.Stale(clock(), idle) {
		return Observed{}
	}
	return k
}

// Last returns the last observed state of a lock, even if it is stale.
func (w *ObservedCache) Last(lock string) (k Observed, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k, ok = w.locks[lock]
	return k, ok
}

// Len returns the number of cached locks.
func (w *ObservedCache) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.locks)
}

// mergedWith returns the union of a state and a newly observed one.
func (k Observed) mergedWith(news Observed) Observed {
	same := news.Floor == k.Floor && news.Low == k.Low
	news.Paused = NewerPause(k.Paused, news.Paused)
	switch {
	case same && news.Seen < k.Seen, news.Floor <= k.Floor && news.Low <= k.Low && !same:
		news.Floor, news.Low, news.Ledger = k.Floor, k.Low, k.Ledger
	case news.Floor < k.Floor || news.Low < k.Low: // Redis has lost data and has recorded other decisions since
		news.Floor, news.Low = max(k.Floor, news.Floor), max(k.Low, news.Low)
		news.Ledger = strings.Trim(k.Ledger+";"+news.Ledger, ";")
	default:
		return news
	}
	news.Longest, news.Seen = max(k.Longest, news.Longest), max(k.Seen, news.Seen)
	return news
}

// Learn records the state in a reply. Replies may arrive out of order, and a Redis that has lost its data may reply with an older state. Therefore
// Learn never lowers the floor, the longest lease and the decided ticks, except values that were ahead of Redis's clock. inUse is false if the
// request did not restart the idle time of the lock.
func (w *ObservedCache) Learn(lock string, k Observed, idle time.Duration, now int64, inUse bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.learnState(lock, k, idle, now, inUse)
}

// LearnPublished records the state in a published message, which any Redis user could have forged. It updates only locks that this client uses. It
// never lowers the longest lease, because a Redis that has lost its data grants nothing for that time.
func (w *ObservedCache) LearnPublished(lock string, k Observed, idle time.Duration, now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	own, used := w.locks[lock]
	if !used {
		return
	}
	k.Permanent, k.Longest = own.Permanent, max(own.Longest, k.Longest)
	w.learnState(lock, k, idle, now, true)
}

// learnState is [ObservedCache.Learn] without locking. The caller holds mu.
func (w *ObservedCache) learnState(lock string, k Observed, idle time.Duration, now int64, inUse bool) {
	old, known := w.locks[lock]
	if old.Stale(k.Seen, idle) {
		old = Observed{}
	}
	if old.Low*1e6 > now+MinuteMicros { // Redis's clock was ahead when this was observed; mend() in state.lua has the same bound
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
func (w *ObservedCache) dropExcess(now, idle time.Duration) {
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

// Delete deletes the state of a lock that was removed from Redis on purpose.
func (w *ObservedCache) Delete(lock string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.locks, lock)
}

// Set replaces the state of a lock. It is for tests that send wrong states to Redis.
func (w *ObservedCache) Set(lock string, k Observed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.locks[lock] = k
}
