package model

import (
	"hash/maphash"
	"math/bits"
)

// Result is the result of a search.
type Result struct {
	States   int      // that differ
	Depth    int      // steps of the longest schedule
	Complete bool     // every state within the bounds was reached
	Cut      int      // schedules that ended because a claimant had observed too little
	Broken   Fault    // the promise that does not hold; 0 if all do
	Schedule []string // that breaks it, as short as possible
}

// Explore searches all schedules within the bounds of setup, breadth first, until a promise is broken or limit states
// have been seen.
//
// States are compared by fingerprints of 64 bits, as in Lamport's TLC: among n states the chance that one is missed
// is about n^2 / 2^65, one in 300,000 for ten million. Replicas are alike, so states that differ only in the names of
// the replicas are one.
func Explore(setup Setup, rules Rules, limit int) Result {
	return newSearch(setup, rules, limit).run()
}

func newSearch(setup Setup, rules Rules, limit int) *search {
	return &search{setup: setup, rules: rules, seed: maphash.MakeSeed(), limit: limit, seen: newSet(1 << 16)}
}

type search struct {
	setup Setup
	rules Rules
	seed  maphash.Seed
	limit int
	plain bool // without reduction and symmetry, for comparison
	seen  set
	trail []origin // of every state, in the order in which they were found
	next  []leaf
	res   Result
}

// origin is how a state was reached: from which, by which of the steps that were possible there.
type origin struct {
	from   uint32
	branch uint16
}

// leaf is a state that was found last.
type leaf struct {
	state State
	at    uint32 // in trail
}

// start is an empty lock of which all replicas know the schedule.
func start(setup *Setup, rules *Rules) State {
	s := State{Left: setup.Faults}
	s.Servers[0].Known = true
	s.Servers[1] = s.Servers[0]
	for r := range s.Replicas {
		s.Replicas[r].Knows.Schedule = rules.ScheduleIsCarried
		if r >= setup.Replicas {
			s.Replicas[r].Mode = dead
		}
	}
	return s
}

func (s *search) run() Result {
	first := start(&s.setup, &s.rules)
	s.seen.add(s.fingerprint(&first))
	s.trail = append(s.trail, origin{})
	level := []leaf{{state: first}}
	s.res.Complete = true
	for len(level) > 0 && s.res.Broken == 0 && s.res.Complete {
		s.next = nil
		for i := range level {
			s.expand(&level[i])
			if s.res.Broken != 0 || !s.res.Complete {
				break
			}
		}
		level = s.next
		if len(level) > 0 {
			s.res.Depth++
		}
	}
	s.res.States = len(s.trail)
	return s.res
}

// expand emits the states that may follow a state.
func (s *search) expand(l *leaf) {
	branch := uint16(0)
	x := steps{Setup: &s.setup, Rules: &s.rules, from: &l.state}
	x.emit = func(_ Step, n *State) {
		branch++
		if s.res.Broken != 0 || !s.res.Complete {
			return
		}
		x.judge(n)
		if n.Blind && n.Broken == 0 {
			s.res.Cut++
			return
		}
		s.reduce(&x, n)
		if !s.seen.add(s.fingerprint(n)) {
			return
		}
		at := uint32(len(s.trail))
		s.trail = append(s.trail, origin{l.at, branch - 1})
		if n.Broken != 0 {
			s.res.Broken, s.res.Schedule = n.Broken, s.schedule(at)
			return
		}
		if len(s.trail) >= s.limit {
			s.res.Complete = false
			return
		}
		s.next = append(s.next, leaf{*n, at})
	}
	x.all()
}

func (s *search) reduce(x *steps, n *State) {
	if !s.plain {
		x.reduce(n)
	}
}

// schedule returns the steps that lead to a state, in words.
func (s *search) schedule(at uint32) (lines []string) {
	var way []uint16
	for ; at > 0; at = s.trail[at].from {
		way = append(way, s.trail[at].branch)
	}
	from := start(&s.setup, &s.rules)
	for i := len(way) - 1; i >= 0; i-- {
		var to State
		branch := uint16(0)
		x := steps{Setup: &s.setup, Rules: &s.rules, from: &from}
		x.emit = func(step Step, n *State) {
			if branch == way[i] {
				lines = append(lines, x.describe(step, n))
				to = *n
				s.reduce(&x, &to)
			}
			branch++
		}
		x.all()
		from = to
	}
	return lines
}

// fingerprint is the same for states that differ only in the order of messages, or in the names of the replicas.
func (s *search) fingerprint(n *State) uint64 {
	least := s.hash(n)
	if s.plain {
		return least
	}
	for _, order := range orders[s.setup.Replicas] {
		c := *n
		c.permute(order)
		least = min(least, s.hash(&c))
	}
	return least
}

func (s *search) hash(n *State) uint64 {
	c := *n
	messages := uint64(0)
	for i := range c.Net {
		if c.Net[i].Kind != 0 {
			messages += maphash.Comparable(s.seed, c.Net[i])
		}
	}
	c.Net = [maxMessages]Message{}
	return maphash.Comparable(s.seed, [2]uint64{maphash.Comparable(s.seed, c), messages})
}

// orders are the ways to rename the replicas: entry i is the new index of replica i.
var orders = [maxReplicas + 1][][maxReplicas]int{
	2: {{1, 0, 2}},
	3: {{0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}},
}

// permute renames the replicas.
func (s *State) permute(to [maxReplicas]int) {
	id := func(id ID) ID {
		if id == 0 {
			return 0
		}
		return ID(int(id) + (to[id.owner()]-id.owner())*idsOf)
	}
	ids := func(set IDs) (out IDs) {
		for ; set != 0; set &= set - 1 {
			out |= setOf(id(ID(bits.TrailingZeros16(uint16(set)))))
		}
		return out
	}
	for i := range s.Servers {
		s.Servers[i].permute(id, ids)
	}
	var replicas [maxReplicas]Replica
	for r := range s.Replicas {
		replicas[to[r]] = s.Replicas[r]
		replicas[to[r]].Knows.Told = ids(s.Replicas[r].Knows.Told)
		for w := range works {
			replicas[to[r]].Work[w].Adopts = id(s.Replicas[r].Work[w].Adopts)
		}
	}
	s.Replicas = replicas
	for i := range s.Net {
		m := &s.Net[i]
		m.ID, m.Adopt, m.Knows.Told = id(m.ID), id(m.Adopt), ids(m.Knows.Told)
	}
	for _, set := range []*IDs{&s.True.Issued, &s.True.Settled, &s.True.Undone, &s.True.Started} {
		*set = ids(*set)
	}
}

func (s *Server) permute(id func(ID) ID, ids func(IDs) IDs) {
	for i := range s.Rows {
		s.Rows[i].ID, s.Rows[i].Adopted = id(s.Rows[i].ID), id(s.Rows[i].Adopted)
		s.Orphans[i], s.Beyond[i] = ids(s.Orphans[i]), ids(s.Beyond[i])
	}
	s.Last.By, s.Told, s.Released, s.Recovered = id(s.Last.By), ids(s.Told), ids(s.Released), ids(s.Recovered)
	tombs := s.Tombs
	for i, t := range tombs {
		s.Tombs[id(ID(i))] = t
	}
}

// set holds fingerprints, in open addressing: eight bytes each and some room.
type set struct {
	slots []uint64
	n     int
}

func newSet(size int) set { return set{slots: make([]uint64, size)} }

// add adds a fingerprint, and returns whether it is new.
func (s *set) add(f uint64) bool {
	if f == 0 {
		f = 1
	}
	if 4*s.n >= 3*len(s.slots) {
		old := s.slots
		*s = newSet(2 * len(old))
		for _, f := range old {
			if f != 0 {
				s.add(f)
			}
		}
	}
	for i := f % uint64(len(s.slots)); ; i = (i + 1) % uint64(len(s.slots)) {
		switch s.slots[i] {
		case f:
			return false
		case 0:
			s.slots[i] = f
			s.n++
			return true
		}
	}
}
