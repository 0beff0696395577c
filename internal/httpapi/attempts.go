package httpapi

import (
	"maps"
	"sync"
	"time"
)

// An attempt is a sign-in in progress. Only the browser stores it, in a cookie "id.expiry.next.signature", so the browser can return to any replica. The
// secrets are derived from the id and the key, so a stolen cookie does not yield the code.
type attempt struct {
	id    string // the slot and a random text
	until int64  // seconds since 1970
	next  string // path to open afterwards
}

// isExpired reports whether the time for the sign-in has passed.
func (a attempt) isExpired(now time.Time) bool { return now.Unix() >= a.until }

// attemptState is the progress of this replica with the code of a callback.
type attemptState int

const (
	unanswered attemptState = iota // the provider was not asked, or was unavailable: the callback may be loaded again
	asking                         // a request is waiting for the provider's answer
	answered                       // the sign-in cannot be used again
)

// mostAttempts is the maximum number of sign-ins that a replica remembers. It exceeds MaxConnections, and so the number of requests that can wait.
const mostAttempts = 4096

// attempts tracks the sign-ins whose callback came to this replica. A cookie and its state permit any number of callbacks, each with a request to the
// provider; a replica therefore sends one request per sign-in. Other replicas do not know of it, but the provider accepts no code twice.
type attempts struct {
	mu    sync.Mutex
	state map[attempt]attemptState // without unanswered ones
}

// stateOf returns the state of a sign-in.
func (as *attempts) stateOf(a attempt) attemptState {
	as.mu.Lock()
	defer as.mu.Unlock()
	return as.state[a]
}

// claimCode reports whether the caller may ask the provider with the code of a sign-in. If so, the caller must end the claim afterwards.
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

// settleClaim ends a claim. state is answered or unanswered.
func (as *attempts) settleClaim(a attempt, state attemptState) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if as.state[a] = state; state == unanswered {
		delete(as.state, a)
	}
}

// makeRoom removes expired sign-ins once there are mostAttempts, and then answered ones. The callback of a removed one costs one more request to the
// provider.
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
