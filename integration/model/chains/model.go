// Package chains searches all short schedules of the protocol of job chains (docs/decisions/025-jobs-after-jobs.md)
// for one that breaks a promise, as package model does for one lock.
//
// A setup has one or two parents, a child, two replicas and two ticks. A change of a lock is one step, since its
// scripts are atomic; between two inspections, or an inspection and a claim, anything may happen. Replies to claims
// are lost, leases run out, replicas die or drain. Of the child's lock the model has only the parts that a chain
// inspects: its ledger, its rows, its orphans and the ticks that were given back. [Explore] takes every step that is
// possible in every state, breadth first.
//
// [Rules] has a switch for each rule. With one of them off, the search must find the schedule that the rule was made
// for; with all of them on it must find none.
//
// The model is not compared with the Lua: locktest runs the important schedules on real servers. The model leaves out
// losses of memory, after which a tick of a chain may be lost, and several followers, deadlines, fan-outs, and a
// chain that is edited.
package chains

import (
	"fmt"
	"hash/maphash"
	"slices"
)

const (
	replicas = 2
	ticks    = 2
	parents  = 2 // at most
)

// Rules are the rules of the protocol.
type Rules struct {
	Atomic         bool // a parent's outcome is kept in the step that gives its row up; else by its holder, afterwards
	DueInOrder     bool // a tick is due when all before it have ended, too
	OrphansHoldUp  bool // a run that waits for a recovery has not ended
	ReopenedHoldUp bool // nor has a tick that was given back
	LastRunDecides bool // a recovery that ends well makes good that its tick was spoiled
	KeptUntilUsed  bool // an outcome is forgotten when its follower has used it; else as soon as it was told
	UndecidedKept  bool // a tick that is undecided in the child's ledger is not used
	PendingKept    bool // nor is one that the child's lock shows as running, as an orphan or as given back, whatever the parents told: looks are of different moments
	PreviousNamed  bool // a claim names the tick of the chain before it; else what the ledger had decided
	AllParents     bool // a tick is one that all parents have ended well
}

// AllRules has all rules of the protocol on.
func AllRules() Rules {
	return Rules{Atomic: true, DueInOrder: true, OrphansHoldUp: true, ReopenedHoldUp: true, LastRunDecides: true, KeptUntilUsed: true, UndecidedKept: true,
		PendingKept: true, PreviousNamed: true, AllParents: true}
}

// Setup bounds a search.
type Setup struct {
	Rules     Rules
	Parents   int
	Ticks     uint8
	Recover   bool  // a parent's run is recovered when its holder dies; else it is recorded as abandoned
	Failures  uint8 // runs of parents that do not end well
	Expiries  uint8 // leases of living holders that run out
	GiveBacks uint8 // grants that are given back before their start
	Lost      uint8 // replies to claims of the child
	Deaths    uint8
	Drains    uint8
}

// word is the outcome of a tick that a parent's lock keeps.
type word uint8

const (
	none word = iota
	well      // ended well
	due       // and all before it have ended
	bad
)

// ledger is the ledger of one lock, with its rows. Sets of ticks have bit t for tick t.
type ledger struct {
	low, done, open uint8            // done out of turn; open: given back
	row             [ticks + 1]uint8 // the replica that runs it
	orphan          [ticks + 1]uint8 // the replica whose run awaits a recovery
}

type parent struct {
	ledger
	words [ticks + 1]word
	used  uint8
	real  [ticks + 1]word // how the last run ended, in truth
	owed  [ticks + 1]uint8
}

// view is the result of an inspection.
type view struct {
	looked           uint8 // bit 0: at the child; bit p: at parent p
	low, open        uint8 // of the child
	running, orphans uint8
	through, ended   [parents]uint8
}

type replica struct {
	gone    bool
	seen    view
	used    uint8 // up to this tick it needs no outcome
	opened  uint8 // the newest tick that it has opened
	claims  uint8 // ticks that it has open
	doubted uint8 // of these, whose claim was not answered
	prev    [ticks + 1]uint8
}

type state struct {
	parents  [parents]parent
	child    ledger
	replicas [replicas + 1]replica // from 1
	runs     [ticks + 1]uint8      // of the child that have begun
	told     uint8                 // ticks of the child that are recorded without a run
	left     Setup
	broken   uint8
}

var promises = []string{"", "P1: a tick of the child has run twice", "P1: a tick has run that not all parents have ended well",
	"P5: a tick counts as decided, and no replica has run it", "P5: an outcome is forgotten before it is used"}

const (
	twice uint8 = 1 + iota
	uncalled
	lost
	forgotten
)

func has(set, tick uint8) bool { return set>>tick&1 == 1 }

// decided returns whether a tick is refused for good.
func (l *ledger) decided(t uint8) bool { return (t <= l.low || has(l.done, t)) && !has(l.open, t) }

// decide enters a tick, before which comes previous.
func (l *ledger) decide(t, previous uint8) {
	l.open &^= 1 << t
	if t > l.low && previous <= l.low {
		l.low = t
	} else if t > l.low {
		l.done |= 1 << t
	}
}

// pending returns whether the run of a tick goes on or awaits a recovery.
func (l *ledger) pending(t uint8) bool { return l.row[t] != 0 || l.orphan[t] != 0 }

// through returns the tick up to which all have ended: lua/chain.lua, ended_through.
func (p *parent) through(r *Rules) uint8 {
	low := p.low
	for has(p.done, low+1) {
		low++
	}
	for t := uint8(1); t <= low; t++ {
		if p.row[t] != 0 || p.orphan[t] != 0 && r.OrphansHoldUp || has(p.open, t) && r.ReopenedHoldUp {
			return t - 1
		}
	}
	return low
}

// comeDue is come_due of lua/chain.lua.
func (p *parent) comeDue(r *Rules) {
	through := p.through(r)
	for t := uint8(1); t <= ticks; t++ {
		ended := t <= through || !r.DueInOrder && !p.pending(t)
		switch {
		case ended && p.words[t] == well:
			p.words[t] = due
		case ended && p.words[t] == bad:
			p.words[t] = none
		}
	}
}

// conclude is conclude of lua/chain.lua.
func (p *parent) conclude(r *Rules, t uint8, how word) {
	if p.words[t] != bad || r.LastRunDecides {
		p.words[t] = how
	}
	p.comeDue(r)
}

// judge checks a state against the promises.
func (x *search) judge(s *state) {
	for t := uint8(1); t <= x.setup.Ticks; t++ {
		if s.broken != 0 || s.runs[t] > 0 || has(s.told, t) || !x.called(s, t) || s.child.pending(t) {
			continue
		}
		if s.child.decided(t) {
			s.broken = lost
			continue
		}
		for p := range x.setup.Parents {
			if w := s.parents[p].words[t]; w != well && w != due && s.parents[p].owed[t] == 0 {
				s.broken = forgotten
			}
		}
	}
}

// called returns whether all parents have ended a tick well.
func (x *search) called(s *state, t uint8) bool {
	for p := range x.setup.Parents {
		if l := &s.parents[p]; l.real[t] != well || l.pending(t) || has(l.open, t) {
			return false
		}
	}
	return true
}

// Explore searches a setup. It returns the way to the first state that breaks a promise, and how many states there are.
func Explore(s Setup) (schedule []string, states int) {
	x := &search{setup: s, seen: map[uint64]int32{}, salt: maphash.MakeSeed()}
	first := state{left: s}
	first.left.Rules = Rules{}
	x.visit(first, -1, 0)
	for layer := []numbered{{first, 0}}; len(layer) > 0; {
		var next []numbered
		for _, st := range layer {
			for n, to := range x.steps(st.state) {
				number, isNew := x.visit(to.state, st.number, n)
				if !isNew {
					continue
				}
				if to.broken > 0 {
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

// visit returns whether a state is new. Two states with the same 64-bit hash count as one, and so do two that differ
// only in the names of the replicas.
func (x *search) visit(s state, from int32, step int) (number int32, isNew bool) {
	h := min(maphash.Comparable(x.salt, s), maphash.Comparable(x.salt, s.swapped()))
	if n, seen := x.seen[h]; seen {
		return n, false
	}
	number = int32(len(x.ways))
	x.seen[h] = number
	x.ways = append(x.ways, way{from, int32(step)})
	return number, true
}

// swapped returns the state with the names of the replicas exchanged.
func (s state) swapped() state {
	s.replicas[1], s.replicas[2] = s.replicas[2], s.replicas[1]
	s.child.swap()
	for p := range s.parents {
		s.parents[p].swap()
		swap(&s.parents[p].owed)
	}
	return s
}

func (l *ledger) swap() {
	swap(&l.row)
	swap(&l.orphan)
}

func swap(who *[ticks + 1]uint8) {
	for t, r := range who {
		if r != 0 {
			who[t] = replicas + 1 - r
		}
	}
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
		schedule = append(schedule, to.what())
		s = to.state
	}
	return append(schedule, "broken: "+promises[s.broken])
}

type successor struct {
	state
	what func() string
}

type search struct {
	setup Setup
	seen  map[uint64]int32
	ways  []way
	salt  maphash.Seed
}

func name(r uint8) string { return string(rune('A' + r - 1)) }

func tickName(t uint8) string { return fmt.Sprintf("T%d", t) }
