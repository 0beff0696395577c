package model

import "math/bits"

// orphan makes one of a run that has ended in a slot.
func (s *Server) orphan(id ID, slot int, attempt uint8) {
	s.unorphan(id)
	s.Orphans[slot] |= setOf(id)
	for i := range s.Beyond {
		if (attempt-1)>>i&1 == 1 {
			s.Beyond[i] |= setOf(id)
		}
	}
}

func (s *Server) unorphan(id ID) {
	for i := range s.Orphans {
		s.Orphans[i] &^= setOf(id)
	}
	for i := range s.Beyond {
		s.Beyond[i] &^= setOf(id)
	}
}

// attempt of an orphan; 0 if it is none.
func (s *Server) attempt(id ID) uint8 {
	_, r := s.asOrphan(id)
	return r.Attempt
}

// asOrphan is what is kept of a run that has ended, if it is an orphan.
func (s *Server) asOrphan(id ID) (slot int, r Row) {
	for i := range s.Orphans {
		if s.Orphans[i].has(id) {
			return i, Row{ID: id, Attempt: 1 + uint8(s.Beyond[0]>>id&1) + uint8(s.Beyond[1]>>id&1)<<1}
		}
	}
	return 0, Row{}
}

// tick that a claim is for. An adoption brings its own, and the ledger is not asked.
func (m *Message) tick() int {
	if m.Adopt != 0 {
		return 0
	}
	return m.ID.work()
}

// adopt lets a row carry an orphan on.
func (m *machine) adopt(r *Row) bool {
	slot, found := m.s.asOrphan(m.q.Adopt)
	if found.ID == 0 {
		return false
	}
	r.Attempt, r.Adopted, r.From = found.Attempt, found.ID, uint8(slot)
	if m.AdoptionCounts {
		r.Attempt++
	}
	if m.AdoptionConsumes {
		m.s.unorphan(found.ID)
	}
	m.twice = m.s.Heired.has(found.ID)
	m.s.Heired |= setOf(found.ID)
	return true
}

// giveBack leaves the orphan of an heir that has never begun to another.
func (m *machine) giveBack(r Row) {
	m.s.Heired &^= setOf(r.Adopted)
	if m.AdoptionGoesBack {
		m.s.orphan(r.Adopted, int(r.From), r.Attempt-1)
	}
}

// heired takes the orphan away whose heir was put back: the server may have forgotten that it has one.
func (m *machine) heired() {
	if m.q.Adopt == 0 {
		return
	}
	m.s.Heired |= setOf(m.q.Adopt)
	if m.PutBackTakesOrphan {
		m.s.unorphan(m.q.Adopt)
	}
}

// allows tells whether a run of this attempt, if it is interrupted, may have an heir.
func (x *steps) allows(attempt uint8) bool { return attempt <= x.Recover }

// over is what is left of a piece of work: where runs are recovered, which ids were used.
func (x *steps) over(k *Work) Work {
	w := Work{Phase: over}
	if x.Recover > 0 {
		w.Generation = k.Generation
	}
	return w
}

// interrupted is what is left of a run whose lease was lost: its holder leaves it to an heir if there may be one.
func (x *steps) interrupted(k *Work) Work {
	return Work{Phase: ending, Generation: k.Generation, Leaves: x.LostIsLeft && x.allows(k.Attempt)}
}

// adopt claims what a dead holder has left of a tick, as the next attempt, under an id of its own.
func (x *steps) adopt(r, w int) {
	k := &x.from.Replicas[r].Work[w]
	if x.Recover == 0 || w == 0 || k.Alive || int(k.Generation)+1 >= generations || x.from.claiming(r, true) {
		return
	}
	for found := x.orphans(w); found != 0; found &= found - 1 {
		o := ID(bits.TrailingZeros16(uint16(found)))
		x.send(adopts, Message{Kind: claim, Adopt: o}, r, w, func(n *State) {
			n.Replicas[r].Work[w] = Work{Generation: k.Generation + 1, Adopts: o}
		})
	}
}

// orphans of a tick that await an heir, as who looks at a master is told.
func (x *steps) orphans(w int) (found IDs) {
	for i := range x.from.Servers {
		if i > 0 && !x.from.Split {
			break
		}
		s := x.from.Servers[i]
		m := machine{Setup: x.Setup, Rules: x.Rules, s: &s, now: x.from.Now - x.from.Back}
		m.purge()
		for all := (s.Orphans[0] | s.Orphans[1]) & idsFor[w]; all != 0; all &= all - 1 {
			o := ID(bits.TrailingZeros16(uint16(all)))
			if x.allows(s.attempt(o)) || !x.RecoveryEnds {
				found |= setOf(o)
			}
		}
	}
	return found
}

// tried accounts for an attempt that begins.
func (x *steps) tried(n *State, m *Message) {
	w := m.ID.work()
	if x.Recover == 0 || w == 0 {
		return
	}
	others := n.alive() & idsFor[w] &^ setOf(m.ID)
	switch {
	case m.Attempt > 1+x.Recover:
		n.Broken = brokenMax
	case n.Lost: // what a server has forgotten may have one more
	case n.True.Tries[w]>>m.Attempt&1 == 1:
		n.Broken = brokenAttempt
	case others != 0:
		n.Broken = brokenBeside
	}
	n.True.Tries[w] |= 1 << m.Attempt
}

// heirless tells that the newest attempt of a tick was interrupted, may have an heir, and awaits none.
func (x *steps) heirless(n *State, tick int) bool {
	tries := n.True.Tries[tick]
	if tries == 0 || tries&wellEnded != 0 || n.Lost || n.Split || !x.allows(uint8(bits.Len8(tries)-1)) || n.Servers[0].keeps(tick) {
		return false
	}
	for r := range x.Replicas {
		p := &n.Replicas[r]
		if k := &p.Work[tick]; p.Mode != dead && k.Phase != over && k.Phase != quiet {
			return false
		}
	}
	return true
}

// keeps tells whether a tick has a row or an orphan.
func (s *Server) keeps(tick int) bool {
	for _, r := range s.Rows {
		if r.ID != 0 && r.ID.work() == tick {
			return true
		}
	}
	return (s.Orphans[0]|s.Orphans[1])&idsFor[tick] != 0
}
