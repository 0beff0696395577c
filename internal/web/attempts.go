package web

import (
	"maps"
	"sync"
	"time"
)

// An attempt is a sign-in in progress. It is stored only in a cookie of the browser, "id.expiry.next.signature", so the browser can return to any replica.
// The state, the nonce and the PKCE verifier are derived from the id and the key, so a stolen cookie does not reveal them.
type attempt struct {
	id    string // the slot, followed by random text
	until int64  // seconds since 1970
	next  string // path to which the browser goes after the sign-in
}

// isExpired reports whether the time for the sign-in has passed.
func (a attempt) isExpired(now time.Time) bool { return now.Unix() >= a.until }

// attemptState is the progress of a sign-in on this replica after its callback.
type attemptState int

const (
	unanswered attemptState = iota // the provider was not asked or was unavailable, so the browser may load the callback again
	asking                         // a request is waiting for the provider's answer
	answered                       // the sign-in is over: its code cannot be used again
)

// mostAttempts is the maximum number of sign-ins that a replica remembers. It is larger than MaxConnections, which bounds the number of requests that wait
// for the provider.
const mostAttempts = 4096

// attempts tracks the sign-ins whose callback reached this replica. A browser could repeat its callback any number of times, so the replica sends at most one
// request per sign-in to the provider at a time, and none after an answer. Other replicas do not share this state, but the provider accepts a code only once.
type attempts struct {
	mu    sync.Mutex
	state map[attempt]attemptState // sign-ins in the state unanswered are absent
}

// stateOf returns the state of a sign-in.
func (as *attempts) stateOf(a attempt) attemptState {
	as.mu.Lock()
	defer as.mu.Unlock()
	return as.state[a]
}

// claimCode reports whether the caller may send the code of a sign-in to the provider. If so, the caller must call settleClaim afterwards.
func (as *attempts) claimCode(a attempt, now time.Time) bool {
	as.mu.Lock()
	defer as.mu.Unlock()
	if as.state[a] != unanswered {
		return false
	}
	as.makeRoom(now)
	as.state[a] = asking
	return true
}

// settleClaim ends a claim. The state must be answered or unanswered.
func (as *attempts) settleClaim(a attempt, state attemptState) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if as.state[a] = state; state == unanswered {
		delete(as.state, a)
	}
}

// makeRoom does nothing below mostAttempts sign-ins. Otherwise it removes the expired ones, and then answered ones until there is room. If the callback of a
// removed sign-in is loaded again, it costs one more request to the provider.
func (as *attempts) makeRoom(now time.Time) {
	if len(as.state) < mostAttempts {
		return
	}
	maps.DeleteFunc(as.state, func(a attempt, _ attemptState) bool { return a.isExpired(now) })
	for a, state := range as.state {
		if len(as.state) < mostAttempts {
			return
		}
		if state == answered {
			delete(as.state, a)
		}
	}
}
