package history

import (
	"slices"

	"github.com/anishathalye/porcupine"
)

// rules are what a lock is to be.
type rules struct {
	slots  int
	bySlot bool // tokens need grow within each slot only
}

// state is the lock between two operations: a permit for each slot, the holders, and the tokens that the resource has
// seen. States are values: a step makes a new one.
type state struct {
	held   []permit
	spent  []int   // unanswered acquires that found no slot, until their end
	newest []int64 // token granted: of each slot, or one for all
	fence  int64   // greatest token that the resource has seen
}

// permit is a slot in use. The grant of an unanswered acquire has no known number.
type permit struct{ hold, slot int }

func (s state) holder(hold int) int {
	return slices.IndexFunc(s.held, func(p permit) bool { return p.hold == hold })
}

func (s state) without(at int) state {
	s.held = slices.Delete(slices.Clone(s.held), at, at+1)
	return s
}

func (s state) with(p permit) state {
	s.held = append(slices.Clip(s.held), p)
	slices.SortFunc(s.held, func(a, b permit) int { return a.hold - b.hold }) // equal sets are equal states
	return s
}

func (s state) equal(to state) bool {
	return s.fence == to.fence && slices.Equal(s.newest, to.newest) && slices.Equal(s.held, to.held) && slices.Equal(s.spent, to.spent)
}

// model is a lock with so many slots that is owner-aware (only a holder's release frees its slot) and fenced (tokens
// grow, and the resource refuses a token older than one that it has seen).
//
// An operation that may or may not have happened needs no choice in it. An unanswered acquire takes a permit where
// there is one and gives it back at its end, and the two may stand side by side; an unanswered release may stand at
// the very end of all.
func model(r rules) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{newest: make([]int64, r.tokens())} },
		Step: func(s, input, _ any) (bool, any) {
			next, ok := s.(state).step(r, input.(Op))
			return ok, next
		},
		Equal: func(a, b any) bool { return a.(state).equal(b.(state)) },
	}
}

// tokens is how many sequences of tokens there are.
func (r rules) tokens() int {
	if r.bySlot {
		return r.slots
	}
	return 1
}

// step returns whether the lock may do this now, and the state after it.
func (s state) step(r rules, op Op) (next state, ok bool) {
	switch op.Kind {
	case Acquire:
		return s.acquire(r, op)
	case Release:
		return s.release(op)
	case Expire:
		return s.expire(op)
	case Write:
		return s.write(op)
	}
	return s, false
}

func (s state) acquire(r rules, op Op) (state, bool) {
	full := len(s.held) >= r.slots
	switch {
	case op.Outcome == Refused:
		return s, full
	case op.Outcome == Unknown && full:
		s.spent = append(slices.Clip(s.spent), op.Hold)
		slices.Sort(s.spent)
		return s, true
	case op.Outcome == Unknown:
		return s.with(permit{op.Hold, NoSlot}), true
	}
	taken := slices.ContainsFunc(s.held, func(p permit) bool { return op.Slot != NoSlot && p.slot == op.Slot })
	if full || taken || op.Slot >= r.slots {
		return s, false
	}
	of := max(op.Slot, 0) % len(s.newest)
	if op.Token != 0 && op.Token <= s.newest[of] {
		return s, false
	}
	s.newest = slices.Clone(s.newest)
	s.newest[of] = max(s.newest[of], op.Token)
	return s.with(permit{op.Hold, op.Slot}), true
}

func (s state) release(op Op) (state, bool) {
	at := s.holder(op.Hold)
	if op.Outcome == Refused {
		return s, at < 0
	}
	if at < 0 {
		return s, op.Outcome == Unknown
	}
	return s.without(at), true
}

// expire of an unanswered acquire comes after it: before that it would free nothing.
func (s state) expire(op Op) (state, bool) {
	if at := s.holder(op.Hold); at >= 0 {
		return s.without(at), true
	}
	if at := slices.Index(s.spent, op.Hold); at >= 0 {
		s.spent = slices.Delete(slices.Clone(s.spent), at, at+1)
		return s, true
	}
	return s, op.Outcome != Unknown
}

func (s state) write(op Op) (state, bool) {
	if op.Token == 0 { // all that the resource can do is trust
		return s, op.Outcome == OK && s.holder(op.Hold) >= 0
	}
	if op.Outcome == Refused {
		return s, op.Token < s.fence
	}
	if op.Token < s.fence {
		return s, false
	}
	s.fence = op.Token
	return s, true
}
