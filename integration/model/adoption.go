package model

import "math/bits"

// orphan turns a run that has ended in a slot into an orphan.
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
	s.Abandoned &^= setOf(id)
}

// attempt of an orphan; 0 if it is none.
func (s *Server) attempt(id ID) uint8 {
	_, r := s.asOrphan(id)
	return r.Attempt
}

// asOrphan returns the orphan with this id as a row, and its slot.
func (s *Server) asOrphan(id ID) (slot int, r Row) {
	for i := range s.Orphans {
		if s.Orphans[i].has(id) {
			return i, Row{ID: id, Attempt: 1 + uint8(s.Beyond[0]>>id&1) + uint8(s.Beyond[1]>>id&1)<<1}
		}
	}
	return 0, Row{}
}

// tick returns the tick of a claim. A recovery brings its own tick, and the server does not consult the ledger.
func (m *Message) tick() int {
	if m.Adopt != 0 {
		return 0
	}
	return m.ID.work()
}

// adopt makes a row carry an orphan on.
func (m *machine) adopt(r *Row) bool {
	slot, found := m.s.asOrphan(m.q.Adopt)
	if found.ID == 0 {
		return false
	}
	r.Attempt, r.Adopted, r.From, r.Kept = found.Attempt, found.ID, uint8(slot), m.s.Abandoned.has(found.ID)
	if m.AdoptionCounts {
		r.Attempt++
	}
	if m.AdoptionConsumes {
		m.s.unorphan(found.ID)
	}
	m.twice = m.s.Recovered.has(found.ID)
	m.s.Recovered |= setOf(found.ID)
	return true
}

// giveBack makes the orphan of a recovery that never began available to another replica.
func (m *machine) giveBack(r Row) {
	m.s.Recovered &^= setOf(r.Adopted)
	if m.AdoptionGoesBack {
		m.s.orphan(r.Adopted, int(r.From), r.Attempt-1)
		if r.Kept {
			m.s.Abandoned |= setOf(r.Adopted)
		}
	}
}

// dropRecovered removes the orphan whose recovery was put back: the server may have forgotten that the recovery exists.
func (m *machine) dropRecovered() {
	if m.q.Adopt == 0 {
		return
	}
	m.s.Recovered |= setOf(m.q.Adopt)
	if m.PutBackTakesOrphan {
		m.s.unorphan(m.q.Adopt)
	}
}

// allows returns whether a run of this attempt may be recovered when it is interrupted.
func (x *steps) allows(attempt uint8) bool { return attempt <= x.Recover }

// over returns a piece of work that has ended. With recovery it keeps the generation of the id that was used.
func (x *steps) over(k *Work) Work {
	w := Work{Phase: over}
	if x.Recover > 0 {
		w.Generation = k.Generation
	}
	return w
}

// interrupted returns the work after its lease was lost: the holder leaves the run to a recovery if one is allowed.
func (x *steps) interrupted(k *Work) Work {
	return Work{Phase: ending, Generation: k.Generation, Leaves: x.LostIsHandedOver && x.allows(k.Attempt)}
}

// adopt claims the orphan of a dead holder as the next attempt, under an id of its own.
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

// orphans returns the orphans of a tick that await a recovery, as an inspection of a master shows them.
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
	case n.Lost: // a server that has lost data may grant one more
	case n.True.Tries[w]>>m.Attempt&1 == 1:
		n.Broken = brokenAttempt
	case others != 0:
		n.Broken = brokenBeside
	}
	n.True.Tries[w] |= 1 << m.Attempt
}

// unrecovered returns whether the newest attempt of a tick was interrupted, may be recovered, and awaits no recovery.
func (x *steps) unrecovered(n *State, tick int) bool {
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

// keeps returns whether a tick has a row or an orphan.
func (s *Server) keeps(tick int) bool {
	for _, r := range s.Rows {
		if r.ID != 0 && r.ID.work() == tick {
			return true
		}
	}
	return (s.Orphans[0]|s.Orphans[1])&idsFor[tick] != 0
}
