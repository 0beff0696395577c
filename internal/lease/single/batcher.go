package single

import (
	"slices"
	"sync"

	"github.com/cronclave/cronclave/internal/lease"
)

// A batcher lets single calls share round trips (group commit). Calls that arrive while a round trip is under way go into the next one, and no call
// waits for others to arrive. One of the callers leads: it sends all of them, and one of the callers that wait then leads the next round trip.
type batcher struct {
	mu      sync.Mutex
	waiting []*waitingCall
	under   int // the number of leaders: of round trips under way, and of callers that will make one
	away    int // the number of calls on their way
}

// maxInFlight is the maximum number of round trips at once if a crowd of calls waits: while the server is busy with one, this process handles the
// replies of the other. A second round trip needs at least crowd calls to be worth it, and takes half of all, so that the two stay of equal size.
const maxInFlight, crowd = 2, 8

// isWorth reports whether the waiting calls justify one more round trip. The caller holds mu.
func (v *batcher) isWorth() bool {
	n := len(v.waiting)
	return n > 0 && (v.under == 0 || v.under < maxInFlight && n >= crowd)
}

// A waitingCall is one call, with the channel through which its caller gets its turn.
type waitingCall struct {
	call  call
	reply reply
	turns chan turn // capacity 1
}

// A turn is what a waiting caller has to do next.
type turn int

const (
	leads turn = iota // make a round trip
	done              // read the reply
)

// joinTimeoutPart is the part of a round trip's timeout, as a divisor, for which other callers wait. After that they send a round trip of their own,
// so that a connection that hangs no longer delays them.
const joinTimeoutPart = 4

func (v *batcher) callsBack(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.away -= n
}

// goFirst reports whether no other call is under way or waits. Then the caller sends at once, by itself and in its own goroutine. A call that was sent
// can't be taken back, so the caller waits for its timeout even if ctx is canceled meanwhile.
func (v *batcher) goFirst() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.under > 0 || len(v.waiting) > 0 {
		return false
	}
	v.under++
	return true
}

// joinWaiting adds a waiting call. If the waiting calls justify a round trip, the first of their callers leads it.
func (v *batcher) joinWaiting(t *waitingCall) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waiting = append(v.waiting, t)
	if v.isWorth() {
		v.appointLeader(v.waiting[0])
	}
}

// appointLeader makes a waiting caller a leader, unless it is one. The caller holds mu.
func (v *batcher) appointLeader(t *waitingCall) {
	select {
	case t.turns <- leads:
		v.under++
	default:
	}
}

// takeGroup returns the calls of the next round trip. Another leader among their callers no longer has to lead.
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

// dismissLeader takes back the turn of a caller to lead. It returns false if that caller has no such turn, or has begun. The caller of dismiss holds mu.
func (v *batcher) dismissLeader(t *waitingCall) bool {
	select {
	case <-t.turns: // a caller that waits has no other turn
		v.under--
		return true
	default:
		return false
	}
}

// endTrip ends a round trip. The first waiting caller leads the next one, if that is worth it.
func (v *batcher) endTrip() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.under--
	if v.isWorth() {
		v.appointLeader(v.waiting[0])
	}
}

// leadNow makes a caller that still waits lead a round trip beside the ones under way.
func (v *batcher) leadNow(t *waitingCall) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if slices.Contains(v.waiting, t) {
		v.appointLeader(t)
	}
}

// leaveWaiting removes a caller, unless its call is on its way.
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
