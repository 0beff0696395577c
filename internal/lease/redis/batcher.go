package redis

import (
	"slices"
	"sync"

	"github.com/cronclave/cronclave/internal/lease"
)

// A batcher lets single calls share round trips (group commit). Calls that arrive during a round trip share the next one. No call waits for later
// calls. One caller, the leader, sends the calls of its group. After that, a waiting caller becomes the next leader.
type batcher struct {
	mu      sync.Mutex
	waiting []*waitingCall
	under   int // the number of leaders, including leaders that have not begun their round trip
	away    int // the number of calls in round trips that are under way
}

// maxInFlight is the maximum number of concurrent round trips. With two, this process handles the replies of one round trip while Redis executes the
// other. A second round trip begins only if at least crowd calls wait. Each takes about half of all calls, so that both have about the same size.
const maxInFlight, crowd = 2, 8

// isWorth reports whether enough calls wait for one more round trip. The caller holds mu.
func (v *batcher) isWorth() bool {
	n := len(v.waiting)
	return n > 0 && (v.under == 0 || v.under < maxInFlight && n >= crowd)
}

// A waitingCall is a call that waits for a round trip. Its caller receives from turns.
type waitingCall struct {
	call  call
	reply reply
	turns chan turn // capacity 1
}

// A turn is an instruction to a waiting caller.
type turn int

const (
	leads turn = iota // make a round trip
	done              // read the reply
)

func (v *batcher) callsBack(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.away -= n
}

// goFirst returns true if no other call is under way or waiting. The caller then sends its call in its own goroutine, and calls endTrip.
func (v *batcher) goFirst() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.under > 0 || len(v.waiting) > 0 {
		return false
	}
	v.under++
	return true
}

// joinWaiting adds a waiting call. If enough calls wait for another round trip, the caller that has waited longest leads it.
func (v *batcher) joinWaiting(t *waitingCall) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waiting = append(v.waiting, t)
	if v.isWorth() {
		v.appointLeader(v.waiting[0])
	}
}

// appointLeader makes a waiting caller a leader, unless it already is one. The caller of appointLeader holds mu.
func (v *batcher) appointLeader(t *waitingCall) {
	select {
	case t.turns <- leads:
		v.under++
	default:
	}
}

// takeGroup removes and returns the calls of the next round trip. It dismisses the callers among them that were appointed leaders.
func (v *batcher) takeGroup() []*waitingCall {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := min(len(v.waiting), max(crowd, (len(v.waiting)+v.away+1)/maxInFlight), lease.MaxBatch)
	group := slices.Clone(v.waiting[:n])
	v.away += n
	v.waiting = slices.Delete(v.waiting, 0, n)
	for _, t := range group {
		v.dismissLeader(t)
	}
	return group
}

// dismissLeader takes the turn to lead back from a waiting caller. It returns false if the caller does not have the turn, or has begun to lead. The
// caller of dismissLeader holds mu.
func (v *batcher) dismissLeader(t *waitingCall) bool {
	select {
	case <-t.turns: // a call that still waits has no reply, so its turn can only be leads
		v.under--
		return true
	default:
		return false
	}
}

// endTrip ends a round trip. If enough calls wait for another round trip, the caller that has waited longest leads it.
func (v *batcher) endTrip() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.under--
	if v.isWorth() {
		v.appointLeader(v.waiting[0])
	}
}

// leadNow makes a caller the leader of one more round trip, if its call still waits.
func (v *batcher) leadNow(t *waitingCall) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if slices.Contains(v.waiting, t) {
		v.appointLeader(t)
	}
}

// leaveWaiting removes a waiting call, unless it is in a round trip already. If its caller was to send the next round trip, another one is.
func (v *batcher) leaveWaiting(t *waitingCall) {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := slices.Index(v.waiting, t)
	if i < 0 {
		return
	}
	v.waiting = slices.Delete(v.waiting, i, i+1)
	if v.dismissLeader(t) && v.isWorth() {
		v.appointLeader(v.waiting[0])
	}
}
