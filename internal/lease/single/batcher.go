package single

import (
	"slices"
	"sync"

	"github.com/cronclave/cronclave/internal/lease"
)

// batcher has single calls share round trips (group commit): calls that come while a round trip is under way go
// together in the next one, and no call waits for others to come. One of the callers leads: it has all sent, and
// the next is led by one of those that wait then.
type batcher struct {
	mu      sync.Mutex
	waiting []*waitingCall
	under   int // leaders: round trips under way, and callers that are told to make one
	away    int // calls on their way
}

// maxInFlight is how many round trips are under way at once when there is a crowd: while the server is busy with one, this process is with the replies of the
// other. A trip beside another needs a crowd to be worth it, and takes half of all, so that they stay alike.
const maxInFlight, crowd = 2, 8

// worth reports whether the waiting calls justify one more round trip. mu is held.
func (v *batcher) worth() bool {
	n := len(v.waiting)
	return n > 0 && (v.under == 0 || v.under < maxInFlight && n >= crowd)
}

// waitingCall is one call, and where its caller is told what to do.
type waitingCall struct {
	call  call
	reply reply
	turns chan turn // capacity 1
}

// turn is what a waiting call is told.
type turn int

const (
	leads turn = iota // it is its turn to make a round trip
	done              // its reply is there
)

// joinTimeoutPart is the part of a round trip's time-out, as a divisor, for which other callers wait. Then they send
// beside it, so that a connection that hangs holds them up no longer.
const joinTimeoutPart = 4

func (v *batcher) back(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.away -= n
}

// first reports whether no other call is under way or waits: then the caller goes at once, by itself and in its
// own goroutine. A sent call can't be taken back, so the caller waits for its time-out even if ctx is cancelled
// meanwhile.
func (v *batcher) first() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.under > 0 || len(v.waiting) > 0 {
		return false
	}
	v.under++
	return true
}

// join lets a caller wait, or lead at once if there is no leader.
func (v *batcher) join(t *waitingCall) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waiting = append(v.waiting, t)
	if v.worth() {
		v.appoint(v.waiting[0])
	}
}

// appoint makes a waiting caller a leader, unless it is one. mu is held.
func (v *batcher) appoint(t *waitingCall) {
	select {
	case t.turns <- leads:
		v.under++
	default:
	}
}

// depart returns the calls of the round trip. Another leader among them has no reason to lead
// any more.
func (v *batcher) depart() []*waitingCall {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := min(len(v.waiting), max(crowd, (len(v.waiting)+v.away+1)/maxInFlight), lease.MaxBatch)
	group := slices.Clone(v.waiting[:n])
	v.away += n
	v.waiting = slices.Delete(v.waiting, 0, n)
	for _, t := range group {
		v.dismiss(t)
	}
	return group
}

// dismiss takes back that a caller is to lead; false if it is not, or has begun. mu is held.
func (v *batcher) dismiss(t *waitingCall) bool {
	select {
	case <-t.turns: // as long as it waits, that is all it is told
		v.under--
		return true
	default:
		return false
	}
}

// arrive ends a round trip. The next one is led by the first of those that wait.
func (v *batcher) arrive() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.under--
	if v.worth() {
		v.appoint(v.waiting[0])
	}
}

// hurry has a caller that still waits lead a round trip beside those under way.
func (v *batcher) hurry(t *waitingCall) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if slices.Contains(v.waiting, t) {
		v.appoint(t)
	}
}

// leave takes a caller out, unless its call is on its way.
func (v *batcher) leave(t *waitingCall) {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := slices.Index(v.waiting, t)
	if i < 0 {
		return
	}
	v.waiting = slices.Delete(v.waiting, i, i+1)
	if v.dismiss(t) && v.worth() {
		v.appoint(v.waiting[0])
	}
}
