package agenda

import (
	"fmt"
	"slices"
	"time"
)

// State is where a tick is on its way from due to decided. Each state has the data that only it has.
//
//	Due -> Waiting -> Asking -> Unsure -> Parked -> Running | Closed
//
//	from       to                                              by
//	Due        Due, Asking, Parked, Closed                     open, Take, Park, Close
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
type State interface{ name() stateName }

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
	// Due is a tick that was opened, and is to be claimed. So are [Waiting] and [Unsure], by the agenda's queue.
	Due struct{ Since time.Time }
	// Waiting ticks were claimed, or parked, and are to be claimed again.
	Waiting struct{ Since time.Time }
	// Asking is a tick whose claim is under way.
	Asking struct {
		Since time.Time
		Claim
	}
	// Unsure is a tick whose last claim has no answer. It is claimed again with the same id.
	Unsure struct{ Since time.Time }
	// Parked ticks wait for a place on this replica, or for their turn, until they are too late.
	Parked struct{ Since time.Time }
	// Returning is a tick whose grant became known too late, and is being given back. Then it is claimed again.
	Returning struct{}
	// GivenUp is a tick that is no longer wanted, and whose claim is under way.
	GivenUp struct {
		Dropped bool // since its schedule is no more
	}
	// Running ticks were granted to this replica. Their run decides their outcome.
	Running struct{}
	// Closed ticks are decided, or given up.
	Closed struct{}
)

// Claim is in what way a tick is claimed.
type Claim struct {
	Abstains bool // it cannot win: this replica has no place for it, or it is not its turn
	Full     bool // this replica was full
	Replaces bool // it has a run stopped, if all slots are held
}

func (Due) name() stateName       { return due }
func (Waiting) name() stateName   { return waiting }
func (Asking) name() stateName    { return asking }
func (Unsure) name() stateName    { return unsure }
func (Parked) name() stateName    { return parked }
func (Returning) name() stateName { return returning }
func (GivenUp) name() stateName   { return givenUp }
func (Running) name() stateName   { return running }
func (Closed) name() stateName    { return closed }

// transitions are all that there are.
var transitions = map[stateName][]stateName{
	due:       {due, asking, parked, closed},
	waiting:   {waiting, asking, parked, closed},
	asking:    {waiting, unsure, parked, running, returning, givenUp, closed},
	unsure:    {unsure, asking, closed},
	parked:    {waiting, parked, asking, closed},
	returning: {waiting, closed},
	givenUp:   {running, closed},
}

// may returns whether there is a transition from a tick's state to another.
func (k *Tick) may(next State) bool { return slices.Contains(transitions[k.state.name()], next.name()) }

// to moves a tick on. A transition that is none is a fault of this program: the tick stays where it is, and the fault is passed to Refused.
func (a *Agenda) to(k *Tick, next State) {
	if k.may(next) {
		k.state = next
		return
	}
	a.refusals++
	if a.Refused != nil {
		a.Refused(fmt.Errorf("tick %s of job %s cannot go from %v to %v", k.At.Format(time.RFC3339), k.Job.Name, k.state.name(), next.name()))
	}
}

// Refusals is how many transitions were refused.
func (a *Agenda) Refusals() int { return a.refusals }

// in returns whether a tick is in one of some states.
func (k *Tick) in(states ...stateName) bool { return slices.Contains(states, k.state.name()) }

// queued returns the state of a tick that is to be claimed.
func (k *Tick) queued(since time.Time) State {
	switch {
	case k.in(due):
		return Due{since}
	case k.Unanswered() && !k.in(parked, returning):
		return Unsure{since}
	}
	return Waiting{since}
}

// since returns from when a tick has been due for a claim, or claimed.
func (k *Tick) since() time.Time {
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

// IsAsking returns whether the claim of a tick is under way.
func (k *Tick) IsAsking() bool { return k.in(asking, givenUp) }

// IsReturning returns whether the grant of a tick is being given back.
func (k *Tick) IsReturning() bool { return k.in(returning) }

// canAsk returns whether a tick may be claimed: not while its claim is under way, or its grant is given back.
func (k *Tick) canAsk() bool { return !k.in(asking, givenUp, returning) }

// Unwanted returns whether a tick was given up while its claim is under way, and whether its schedule is no more.
func (k *Tick) Unwanted() (givenUp, dropped bool) {
	s, is := k.state.(GivenUp)
	return is, s.Dropped
}

// Claim is in what way a tick is claimed whose claim is under way.
func (k *Tick) Claim() Claim {
	s, _ := k.state.(Asking)
	return s.Claim
}
