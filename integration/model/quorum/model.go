// Package quorum searches all short schedules of the protocol of a quorum (docs/decisions/013-quorum.md) for one that
// breaks a promise, as package model does for one server.
//
// A setup has three nodes, two or three claimants, one lock of one or two rows, and one tick. A request to a node is
// a message that is executed once, or never, at any time later; its reply is heard at once, or lost. That loses no
// schedule: a claimant only counts votes, and a vote that it hears late equals a node that was asked late. Nodes
// forget, claimants die, time passes. [Explore] takes every step that is possible in every state, breadth first, and
// returns the shortest way to the first state that breaks a promise.
//
// [Rules] has a switch for each rule. With one of them off, the search must find the schedule that the rule was made
// for; with all of them on it must find none. The tests demand both.
//
// The model is not compared with the Lua: locktest runs the important schedules on real nodes. The model leaves out
// the account of runs but for the one tick, schedules, give-backs, slots of a fan-out, locks that idle, and clocks
// that differ.
package quorum

import (
	"fmt"
	"hash/maphash"
	"slices"
)

const (
	nodes    = 3
	majority = 2
	most     = 3 // claimants
	slots    = 2 // at most
	lease    = 2 // units of time
	inFlight = 9
	perUnit  = 4 // tokens of a unit of time
)

// Rules are the rules of the protocol; all are on but in the tests of one.
type Rules struct {
	SameRow           bool // a majority for the same row, not for any
	FloorPromises     bool // a node takes no token that is not above its floor
	LedgerLast        bool // the first phase writes no ledger
	NewestValue       bool // a claimant completes a value that a majority may have accepted
	Conditional       bool // accept only where no later ballot was promised, and the row is held
	AcceptMajority    bool // the ledger counts on a majority
	DropStragglers    bool // a claimant that gives up takes back the rows that it got and may still get
	RenewMajority     bool // a renewal counts on a majority
	ForgottenIsSilent bool // a node that has forgotten does not vote for a lease
	Reseeded          bool // and then knows what a majority knows
	QuietBeginning    bool // a majority that seems new begins only when nothing has reached it for a lease
	ShutBeforeDeath   bool // the dead are shut on a majority
	RenewalVotes      bool // a renewal on a node that has forgotten does not count
}

// AllRules has all of them on.
func AllRules() Rules {
	return Rules{true, true, true, true, true, true, true, true, true, true, true, true, true}
}

// Setup bounds a search.
type Setup struct {
	Rules        Rules
	Claimants    int
	Slots        int
	Ticks        bool // the claims are for one tick, which is entered in the ledger
	Settles      bool // a claimant that finds all rows held settles the tick as skipped
	Renews       bool
	LooksForDead bool  // the last claimant only looks for dead holders
	Newcomer     bool  // node 3 was away when the quorum began
	Losses       uint8 // of messages and replies
	Forgets      uint8
	Deaths       uint8
	Tries        uint8
	GivesUp      bool // a claimant may at any time
	Horizon      uint8
}

type row struct{ who, token, expiry uint8 }

type node struct {
	floor  uint8
	rows   [slots]row
	ballot uint8
	value  uint8 // 0: the tick is open; the claimant that it was granted to; skipped
	silent bool  // it does not vote
	since  uint8
	shut   [most + 1]uint8 // nothing of this token or a smaller one is renewed or granted again
	dead   [most + 1]uint8 // claims up to this token were dropped
}

const skipped = most + 1

type phase uint8

const (
	idle phase = iota
	claiming
	preparing
	accepting
	holding
	looking
	over
)

type claimant struct {
	phase         phase
	token, floor  uint8
	yes, no       uint8 // nodes, as bits
	ballot, value uint8 // the newest in the replies
	write         uint8 // the value that it writes
	sent, until   uint8
	renewing      uint8 // nodes that have renewed, as bits
	tries         uint8
	slot          uint8
	granted, told bool
	outcome       uint8 // the claimant that has the tick, as it was told
	refusals      [slots]uint8
}

type kind uint8

const (
	claim kind = iota + 1
	prepare
	accept
	renew
	inspect
)

type message struct {
	kind                          kind
	who, node, token, value, slot uint8
	sent                          uint8
}

type state struct {
	time         uint8
	nodes        [nodes]node
	claimants    [most + 1]claimant // from 1
	net          [inFlight]message
	losses       uint8
	forgets      uint8
	deaths       uint8
	declaredDead uint8 // the claimant that was declared dead
	newest       uint8 // the token of the newest grant
	broken       uint8
	dropped      bool // a message was lost: rows may be left behind until they expire
}

var promises = []string{"", "the tick is granted once", "the tick has one outcome", "a row has one holder, and no more than the limit hold one",
	"tokens grow", "a claimant that gives up leaves no row", "a split vote burns no tick", "the living are not declared dead"}

// Explore searches a setup. It returns the way to the first state that breaks a promise, and how many states there are.
func Explore(s Setup) (schedule []string, states int) {
	x := &search{setup: s, seen: map[uint64]int32{}, salt: maphash.MakeSeed()}
	first := state{}
	if s.Newcomer {
		first.nodes[nodes-1].silent = true
	}
	x.visit(first, -1, 0)
	for layer := []numbered{{first, 0}}; len(layer) > 0; {
		var next []numbered
		for _, st := range layer {
			steps := x.steps(st.state)
			for n := range steps {
				to := &steps[n]
				number, isNew := x.visit(to.state, st.number, n)
				if !isNew {
					continue
				}
				if to.state.broken > 0 {
					return x.describe(first, number), len(x.ways)
				}
				next = append(next, numbered{to.state, number})
			}
		}
		layer = next
	}
	return nil, len(x.ways)
}

type numbered struct {
	state
	number int32
}

// visit returns whether a state is new. Two states with the same 64-bit hash count as one.
func (x *search) visit(s state, from int32, step int) (number int32, isNew bool) {
	h := maphash.Comparable(x.salt, s)
	if n, seen := x.seen[h]; seen {
		return n, false
	}
	number = int32(len(x.ways))
	x.seen[h] = number
	x.ways = append(x.ways, way{from, int32(step)})
	return number, true
}

// way is the step, and the state before it, by which a state was reached.
type way struct{ from, step int32 }

// describe returns the steps that lead to a state, in words.
func (x *search) describe(s state, number int32) (schedule []string) {
	var steps []int32
	for n := number; x.ways[n].from >= 0; n = x.ways[n].from {
		steps = append(steps, x.ways[n].step)
	}
	slices.Reverse(steps)
	for _, n := range steps {
		to := x.steps(s)[n]
		schedule = append(schedule, fmt.Sprintf("%d: %s", s.time, to.describe()))
		s = to.state
	}
	return append(schedule, "broken: "+promises[s.broken])
}

type successor struct {
	state
	format string
	of     any // the message, node or claimant that the format names, or nil
}

func (s *successor) describe() string {
	if s.of == nil {
		return s.format
	}
	return fmt.Sprintf(s.format, s.of)
}

type search struct {
	setup Setup
	next  []successor // of the state that was looked at last
	seen  map[uint64]int32
	ways  []way
	salt  maphash.Seed
}

// canonical orders the messages in flight. They are few, and nearly in order.
func (s *state) canonical() {
	var orders [inFlight]uint64
	for i := range s.net {
		m, order, at := s.net[i], s.net[i].order(), i
		for ; at > 0 && orders[at-1] < order; at-- {
			orders[at], s.net[at] = orders[at-1], s.net[at-1]
		}
		orders[at], s.net[at] = order, m
	}
}

func (m message) order() uint64 {
	return uint64(m.kind)<<48 | uint64(m.who)<<40 | uint64(m.node)<<32 | uint64(m.token)<<24 | uint64(m.value)<<16 | uint64(m.slot)<<8 | uint64(m.sent)
}

func (m message) String() string {
	name := []string{"", "claim", "prepare", "accept", "renew", "inspect"}[m.kind]
	return fmt.Sprintf("%s of %c with %d (value %d, row %d) at node %d, sent at %d", name, 'A'+m.who-1, m.token, m.value, m.slot, m.node+1, m.sent)
}

func (s *state) send(m message) bool {
	for i := range s.net {
		if s.net[i].kind == 0 {
			s.net[i] = m
			return true
		}
	}
	return false
}

func bits(b uint8) int { return int(b&1 + b>>1&1 + b>>2&1) }
