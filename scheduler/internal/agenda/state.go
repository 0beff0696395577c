package agenda

import (
	"fmt"
	"slices"
	"time"
)

// A State is the state of a tick, with the data of that state.
//
//	Due -> Waiting -> Asking -> Unsure -> Parked -> Running | Closed
//
//	from       to                                              by
//	Due        Due, Asking, Parked, Closed                     Ask, Send, Park, Close
//	Waiting    Waiting, Asking, Parked, Closed                 Ask, Send, Park, Close
//	Asking     Waiting, Unsure, Parked                         an answer that does not decide the tick
//	           Running, Returning, Closed                      one that does
//	           GivenUp                                         GiveUp, before the answer
//	Unsure     Unsure, Asking, Closed                          Ask, Send, Close. It is never parked: it may have been granted
//	Parked     Waiting, Parked, Asking, Closed                 Ask (a place is free), Park, Send (to settle it), Close
//	Returning  Waiting, Closed                                 Ask (the grant was given back), Close
//	GivenUp    Running, Closed                                 the answer
//	Running    -                                               the run decides
//	Closed     -
type State interface{ stateName() stateName }

type stateName int

const (
	due stateName = iota
	waiting
	asking
	unsure
	parked
	returning
	givenUp
	running
	closed
)

func (n stateName) String() string {
	return [...]string{"due", "waiting", "asking", "unsure", "parked", "returning", "given up", "running", "closed"}[n]
}

type (
	// Due is a tick that was opened and not claimed yet. It is in the queue Asks, like [Waiting] and [Unsure] ticks.
	Due struct{ Since time.Time }
	// Waiting is a tick that was claimed or parked before, and is to be claimed again.
	Waiting struct{ Since time.Time }
	// Asking is a tick whose claim is under way.
	Asking struct {
		Since time.Time
		Claim
	}
	// Unsure is a tick whose last claim has no answer. It is claimed again with the same id.
	Unsure struct{ Since time.Time }
	// Parked is a tick that waits for a place on this replica, or for older ticks of its job, at most until its deadline.
	Parked struct{ Since time.Time }
	// Returning is a tick whose grant arrived too late and is being given back. Then the tick is claimed again.
	Returning struct{}
	// GivenUp is a tick that was given up while its claim was under way.
	GivenUp struct {
		Dropped bool // the tick was given up because its schedule was replaced
	}
	// Running is a tick that was granted to this replica, and left the agenda.
	Running struct{}
	// Closed is a tick that was decided or given up, and left the agenda.
	Closed struct{}
)

// A Claim has the options of a claim.
type Claim struct {
	Abstains bool // the claim cannot be granted: there is no free place, or older ticks come first
	Full     bool // this replica had no free place for any job
	Replaces bool // the claim stops a run if all slots are held
}

func (Due) stateName() stateName       { return due }
func (Waiting) stateName() stateName   { return waiting }
func (Asking) stateName() stateName    { return asking }
func (Unsure) stateName() stateName    { return unsure }
func (Parked) stateName() stateName    { return parked }
func (Returning) stateName() stateName { return returning }
func (GivenUp) stateName() stateName   { return givenUp }
func (Running) stateName() stateName   { return running }
func (Closed) stateName() stateName    { return closed }

// transitions has all valid transitions.
var transitions = map[stateName][]stateName{
	due:       {due, asking, parked, closed},
	waiting:   {waiting, asking, parked, closed},
	asking:    {waiting, unsure, parked, running, returning, givenUp, closed},
	unsure:    {unsure, asking, closed},
	parked:    {waiting, parked, asking, closed},
	returning: {waiting, closed},
	givenUp:   {running, closed},
}

// mayBecome reports whether the transition of a tick to another state is valid.
func (k *Tick) mayBecome(next State) bool {
	return slices.Contains(transitions[k.state.stateName()], next.stateName())
}

// moveTo moves a tick to another state. An invalid transition is a bug of this program: then the tick keeps its state, and moveTo calls Refused.
func (a *Agenda) moveTo(k *Tick, next State) {
	if k.mayBecome(next) {
		k.state = next
		return
	}
	a.refusals++
	if a.Refused != nil {
		a.Refused(fmt.Errorf("tick %s of job %s cannot go from %v to %v", k.At.Format(time.RFC3339), k.Job.Name, k.state.stateName(), next.stateName()))
	}
}

// Refusals returns the number of invalid transitions so far.
func (a *Agenda) Refusals() int { return a.refusals }

// isIn reports whether the state of a tick is one of some states.
func (k *Tick) isIn(states ...stateName) bool { return slices.Contains(states, k.state.stateName()) }

// queuedState returns the state of a tick after it is queued for a claim.
func (k *Tick) queuedState(since time.Time) State {
	switch {
	case k.isIn(due):
		return Due{since}
	case k.Unanswered() && !k.isIn(parked, returning):
		return Unsure{since}
	}
	return Waiting{since}
}

// waitsSince returns the time since which a tick has been waiting for a claim or for its answer.
func (k *Tick) waitsSince() time.Time {
	switch s := k.state.(type) {
	case Due:
		return s.Since
	case Waiting:
		return s.Since
	case Asking:
		return s.Since
	case Unsure:
		return s.Since
	case Parked:
		return s.Since
	}
	return time.Time{}
}

// IsAsking reports whether the claim of a tick is under way.
func (k *Tick) IsAsking() bool { return k.isIn(asking, givenUp) }

// IsReturning reports whether the grant of a tick is being given back.
func (k *Tick) IsReturning() bool { return k.isIn(returning) }

// canAsk reports whether a tick may be claimed now. It must not be claimed while its claim is under way or its grant is being given back.
func (k *Tick) canAsk() bool { return !k.isIn(asking, givenUp, returning) }

// Unwanted reports whether a tick was given up while its claim was under way, and whether this was because its schedule was replaced.
func (k *Tick) Unwanted() (givenUp, dropped bool) {
	s, is := k.state.(GivenUp)
	return is, s.Dropped
}

// Claim returns the options of the claim that is under way.
func (k *Tick) Claim() Claim {
	s, _ := k.state.(Asking)
	return s.Claim
}
