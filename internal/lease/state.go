package lease

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// An InspectRequest asks for the state of a lock.
type InspectRequest struct {
	Lock      string
	Permanent bool // see [Request]
	// Schedule, if set, is the schedule that a starting replica announces. If it differs from the current schedule of the lock, it becomes the current
	// schedule, and its ticks before now count as decided.
	Schedule string
	// Behind is the number of seconds by which [Tick.At] of the announced schedule is currently behind [Tick.Instant]. ZoneRules, if set, is a hash of
	// the time zone data from which the instants of the schedule are computed.
	Behind    int64
	ZoneRules string
	// SettleThrough, if set, settles all undecided ticks up to this one if Redis's clock is past SettleDeadline. It does not settle ticks of
	// [State.Open] that are not later than [State.Before].
	SettleThrough, SettleDeadline time.Time
	// SettleOutcome, if set, is the outcome of the ticks that SettleThrough settles, and SettleSchedule is their schedule. The lock keeps one
	// [Settlement] for all these ticks until a replica has recorded it: see [State.Settled].
	SettleOutcome, SettleSchedule string
	// Follower, if set, is the name of a lock whose ticks depend on the ticks of this lock. The reply then lists the ticks that succeeded. Used is the
	// newest tick whose outcome the follower no longer needs. The lock forgets an outcome once all followers have used it, and keeps at most a thousand
	// outcomes. It forgets a follower that no request has named for a day, and refuses the request of a new one with [ErrTooManyFollowers] while it has
	// [MaxFollowers]. A tick has an outcome only if its holder reported one: see
	// [Run.ReleaseWith]. If Redis loses its data, the outcomes are lost.
	Follower string
	Used     time.Time
	// Acked has ticks of [State.Settled] whose outcome was recorded. The lock forgets the settlements of these ticks.
	Acked []time.Time
	// Abandon has lease ids of [State.Orphans] that the caller is about to record as abandoned. Once the lock has marked these orphans, a withdrawal of
	// their lease ids does not reopen their ticks.
	Abandon []string
}

// A State is the state of a lock. Times are by Redis's clock.
type State struct {
	Now     time.Time
	Floor   Token        // the greatest token so far
	Decided time.Time    // all ticks up to Decided are decided, except the ticks in Open
	Open    []time.Time  // ticks that were given back because their run never started, oldest first: see [ReleaseUndo]
	Before  time.Time    // the value of Decided before SettleThrough was applied
	Closed  time.Time    // the lock grants nothing before this time; zero or past if the lock is open
	Pause   Pause        // the newest pause; [Pause.On] reports whether it is still on
	Running []Row        // the held leases
	Orphans []Row        // runs whose holder died or handed the run over, until [Client.DeleteOrphans]
	Through time.Time    // for a follower: all ticks up to Through have ended; zero if unknown, as in a closed lock
	Ended   []Ended      // for a follower: the ticks up to Through that succeeded, oldest first
	Settled []Settlement // settlements that no replica has recorded yet
	// RulesSince is the time at which the lock changed to the ZoneRules of the request. It is zero if the lock never had other ZoneRules.
	RulesSince time.Time
	Err        error // if set, the outcome is unknown and all other fields are empty
}

// A Settlement records the outcome of a tick that a request with [Tick.KeepOutcome] settled without a grant. If After is set, the Settlement is for
// all undecided ticks later than After, up to Tick, which an [InspectRequest] with a SettleOutcome settled. A lock keeps its newest hundred
// settlements.
type Settlement struct {
	Tick, At time.Time
	Outcome  string
	After    time.Time // zero for a single tick
	Schedule string    // "" for a single tick
	Instant  time.Time // the instant at which a single tick was due, as computed by the client that settled it
}

// NewSettlement decodes a stored settlement. For a single tick, how is the outcome and, if [Tick.Behind] is not 0, a tab and Behind. For several
// ticks, how has three lines: After, the outcome, and the schedule. tick is in seconds and at in microseconds.
func NewSettlement(tick, at int64, how string) Settlement {
	s := Settlement{Tick: FromMicros(tick * 1e6), At: FromMicros(at), Outcome: how}
	if lines := strings.SplitN(how, "\n", 3); len(lines) == 3 {
		s.After, s.Outcome, s.Schedule = time.Unix(ParseNumber(lines[0]), 0).UTC(), lines[1], lines[2]
		return s
	}
	outcome, behind, _ := strings.Cut(s.Outcome, "\t")
	s.Outcome, s.Instant = outcome, s.Tick.Add(time.Duration(ParseNumber(behind))*time.Second)
	return s
}

// SingleSettlement encodes the outcome of a single tick in the format of [NewSettlement].
func SingleSettlement(outcome string, behind int64) string {
	if behind == 0 {
		return outcome
	}
	return fmt.Sprintf("%s\t%d", outcome, behind)
}

// A Row is a held lease or an orphan, as a request for the state of the lock returns it. The lease of an orphan has ended.
type Row struct {
	ID, Holder string
	Slot       int
	Token      Token
	Length     time.Duration
	Expires    time.Time // zero for an orphan
	Tick       time.Time // zero if the lease has no tick
	Attempt    int
	Trigger    string
	Memo       string
	EndedWell  bool   // the work of the orphan had succeeded before its holder died: see [Run.MarkSucceeded]
	Stopped    string // the reason of a [Client.Stop] that came before the lease of the orphan ended; "" without one
	// Renewed is true if the lease of the orphan was certainly renewed, so the holder had received the grant.
	Renewed   bool
	Abandoned bool // the tick of the orphan stays decided, because of [InspectRequest.Abandon] or [Run.HandOver]
}

// An Ended is a tick that has succeeded. Due is the time from which this tick and all earlier ticks had ended. A tick has ended once it is decided
// and has neither a held lease nor an orphan.
type Ended struct{ Tick, Due time.Time }

// Validate returns an error if a field contains a separator of the format in which Redis stores it, or is too long.
func (r InspectRequest) Validate() error {
	if strings.ContainsAny(r.Follower, " ;\t\n") || len(r.Follower) > maxFollowerName {
		return fmt.Errorf("follower %.300q: it must be without blanks, semicolons and line breaks, and at most %d bytes long", r.Follower, maxFollowerName)
	}
	if strings.ContainsAny(r.SettleOutcome+r.SettleSchedule, ";\n") {
		return fmt.Errorf("outcome %q and schedule %q: they must have neither semicolons nor line breaks", r.SettleOutcome, r.SettleSchedule)
	}
	if strings.ContainsAny(strings.Join(r.Abandon, ""), ";\n") {
		return fmt.Errorf("orphans %q: they must have neither semicolons nor line breaks", r.Abandon)
	}
	return nil
}

// ReadOnly reports whether the request changes nothing in the lock.
func (l InspectRequest) ReadOnly() bool {
	return l.Schedule == "" && l.SettleThrough.IsZero() && l.SettleOutcome == "" && l.Follower == "" && len(l.Acked) == 0 && len(l.Abandon) == 0
}

// SettleRecord encodes SettleOutcome and SettleSchedule for storage. It returns "" without a SettleOutcome.
func (l InspectRequest) SettleRecord() string {
	if l.SettleOutcome == "" {
		return ""
	}
	return l.SettleOutcome + "\n" + l.SettleSchedule
}

// SortEnded sorts by tick, the oldest first.
func SortEnded(ended []Ended) {
	slices.SortFunc(ended, func(a, b Ended) int { return a.Tick.Compare(b.Tick) })
}

// An Observed is the state of a lock as a reply has reported it. Floor, Longest and Low are as in [Known]. Later requests carry this state, because
// Redis may have lost the lock's data by FLUSHALL, a restart, or a failover.
type Observed struct {
	Floor, Longest, Low int64
	Ledger, Paused      string        // encoded: see [PauseRecord], and ledger_text() in lua/state.lua
	Seen                time.Duration // the local clock before the request was sent
	Permanent           bool
	Compact             bool // the newest reply showed a compact lock; other clients may have changed the lock since
}

// An ObservedCache has the state of every lock that a client uses. It is safe for concurrent use.
type ObservedCache struct {
	mu    sync.Mutex
	locks map[string]Observed
	sweep int // if there are more locks than this, stale entries are dropped
}

// mostLocks is the maximum number of cached locks. Beyond it, arbitrary locks are dropped, but not permanent ones.
const mostLocks = 200_000

// NewObservedCache returns an empty cache.
func NewObservedCache() *ObservedCache { return &ObservedCache{locks: map[string]Observed{}} }

// Stale reports whether Redis may have deleted the lock because it was idle. This is no loss of data, so the state must not be restored.
// Redis keeps a lock for at least twice its longest lease: see save() in lua/state.lua.
func (k Observed) Stale(now, idle time.Duration) bool {
	kept := max(idle, 2*time.Duration(k.Longest)*time.Microsecond)
	return !k.Permanent && now-k.Seen > kept/2
}

// Of returns the state of a lock; zero if the state is stale or unknown.
func (w *ObservedCache) Of(lock string, clock func() time.Duration, idle time.Duration) Observed {
	k, ok := w.Last(lock)
	if !ok || k.Stale(clock(), idle) {
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

// mergedWith merges a newly observed state into k. news may be older than k, because replies may arrive out of order.
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
// Learn never lowers Floor and Low, unless Low was ahead of Redis's clock. now is Redis's clock, in microseconds. inUse is false if the request did
// not restart the idle time of the lock.
func (w *ObservedCache) Learn(lock string, k Observed, idle time.Duration, now int64, inUse bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.learnState(lock, k, idle, now, inUse)
}

// LearnPublished records the state in a published message, which any Redis user could have forged. It updates only locks that this client uses. It
// never lowers Longest: after a loss of data Redis grants nothing for that time, and a forged low value would shorten this wait.
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

// learnState is [ObservedCache.Learn] for a caller that holds mu.
func (w *ObservedCache) learnState(lock string, k Observed, idle time.Duration, now int64, inUse bool) {
	old, known := w.locks[lock]
	if old.Stale(k.Seen, idle) {
		old = Observed{}
	}
	if old.Low*1e6 > now+MinuteMicros { // Redis's clock was ahead when it sent Low; mend() in state.lua has the same bound
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

// dropExcess drops stale entries if there are more entries than sweep, and others if there are still too many. The caller holds mu.
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

// forgetUnused deletes the states of unused locks that no reply has shown for [MaxLease]. Until then, a lease that this client has observed may still be
// held, and a lock that is soon used again has its state.
func (w *ObservedCache) forgetUnused(now time.Duration, unused func(lock string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.locks, func(lock string, k Observed) bool { return now-k.Seen > MaxLease && unused(lock) })
}

// Set replaces the state of a lock. It is for tests that send wrong states to Redis.
func (w *ObservedCache) Set(lock string, k Observed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.locks[lock] = k
}
