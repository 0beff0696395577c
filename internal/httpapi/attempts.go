package httpapi

import (
	"maps"
	"sync"
	"time"
)

// attempt is a sign-in that is under way. Only the browser keeps it, in a cookie "id.expiry.next.signature", so it can come back to any replica. Its secrets
// are derived from the id, so a cookie that is read by others releases no code.
type attempt struct {
	id    string // the slot, and a random text
	until int64  // in seconds since 1970
	next  string // the path to go to afterwards
}

// over returns whether the person has taken too long at the provider.
func (a attempt) over(now time.Time) bool { return now.Unix() >= a.until }

// attemptState is how far this replica is with the code with which a browser came back.
type attemptState int

const (
	unanswered attemptState = iota // the provider was not asked, or could not be used: the callback may be loaded again
	asking                         // a request waits for the provider's answer
	answered                       // the sign-in is used up
)

// mostAttempts is how many attempts a replica remembers, more than MaxConnections requests wait with.
const mostAttempts = 4096

// attempts are those that came back to this replica. A cookie and its state are good for any number of callbacks, each of which has the provider asked: so
// a replica asks once for each attempt. Other replicas do not know of it, and the provider accepts no code twice.
type attempts struct {
	mu    sync.Mutex
	state map[attempt]attemptState // has no unanswered ones
}

// of returns the state of an attempt.
func (as *attempts) of(a attempt) attemptState {
	as.mu.Lock()
	defer as.mu.Unlock()
	return as.state[a]
}

// claim returns whether a request may ask the provider with the code of an attempt. If so, it settles the attempt afterwards.
func (as *attempts) claim(a attempt, now time.Time) bool {
	as.mu.Lock()
	defer as.mu.Unlock()
	if as.state[a] != unanswered {
		return false
	}
	as.makeRoom(now)
	as.state[a] = asking
	return true
}

// settle ends a claim, as answered or unanswered.
func (as *attempts) settle(a attempt, state attemptState) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if as.state[a] = state; state == unanswered {
		delete(as.state, a)
	}
}

// makeRoom forgets attempts that are over, if there are many, and any that was answered if that is not enough: its code costs one more request to the provider.
func (as *attempts) makeRoom(now time.Time) {
	if len(as.state) < mostAttempts {
		return
	}
	maps.DeleteFunc(as.state, func(a attempt, _ attemptState) bool { return a.over(now) })
	for a, state := range as.state {
		if len(as.state) < mostAttempts {
			return
		}
		if state == answered {
			delete(as.state, a)
		}
	}
}
