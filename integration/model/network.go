package model

import "math/bits"

// message emits the next steps of a message: its request is executed, or its reply arrives.
func (x *steps) message(i int) {
	m := &x.from.Net[i]
	switch {
	case m.Kind == 0:
	case m.Phase != answered:
		n := *x.from
		x.deliver(&n, i)
		x.emit(Step{Act: arrives, Net: uint8(i)}, &n)
		x.lose(i)
	case x.from.Replicas[m.ID.owner()].Mode == up:
		n := *x.from
		x.take(&n, i)
		x.emit(Step{Act: isAnswered, Net: uint8(i)}, &n)
	}
}

// lose breaks a connection: its request stays in the network, and no replica waits for the reply.
func (x *steps) lose(i int) {
	m := x.from.Net[i]
	if m.Phase == stray || x.from.Left.Strays == 0 || x.from.Left.Silences == 0 || x.from.Replicas[m.ID.owner()].Mode != up {
		return
	}
	n := *x.from
	n.Left.Strays--
	n.Left.Silences--
	n.Net[i].Phase = stray
	x.unheard(&n, &m)
	x.emit(Step{Act: breaks, Net: uint8(i)}, &n)
}

// unheard ends the wait for a reply.
func (x *steps) unheard(n *State, m *Message) {
	switch k := &n.Replicas[m.ID.owner()].Work[m.ID.work()]; {
	case m.Kind == claim:
		x.unanswered(k)
	case m.Kind == release && k.Phase == ending: // the row runs out by itself
		k.Phase = over
	}
}

// deliver lets a server execute a request, and checks the result.
func (x *steps) deliver(n *State, i int) {
	q := &n.Net[i]
	s := &n.Servers[q.To]
	m := &machine{Setup: x.Setup, Rules: x.Rules, s: s, q: q, now: n.Now - n.Back}
	late := q.Phase == stray
	known, row := s.Told|q.Knows.Told, s.Rows[q.Slot]
	if !n.Lost {
		known = ^IDs(0) // nothing was forgotten
	}
	word := s.Pause.newer(q.Knows.Pause)
	if !n.Lost {
		word = n.True.Pause
	}
	m.execute()
	s.Last = Settlement{} // both answers to a repeated request mean the same
	q.Lag, q.Acked = n.Back, n.Split && q.To == 1
	isolated := n.Split && q.To == 0 && x.AcknowledgedGrants // its grants do not count
	if q.Kind == claim && !isolated {
		x.judgeClaim(n, m, known)
		x.judgePause(n, m, word)
	}
	x.judgeRow(n, m, row)
	if late {
		*q = Message{}
		return
	}
	q.trim()
}

// trim drops the parts of a reply that no step reads, so that fewer states differ.
func (m *Message) trim() {
	m.Until, m.Waited, m.Skip, m.First, m.Undo, m.Leave = 0, false, false, false, false, false
	if m.Verdict != isGranted && m.Verdict != isRenewed {
		m.Slot, m.Token, m.Left, m.Attempt = 0, 0, 0, 0
	}
	if m.Kind != claim {
		m.Adopt, m.Attempt = 0, 0
	}
	if m.Verdict != isSettled {
		m.How = 0
	}
}

// judgeClaim checks a claim's result against the promises. known is the union of the grants and settlements that the
// claimant and the server had observed.
func (x *steps) judgeClaim(n *State, m *machine, known IDs) {
	q := m.q
	decides := m.fresh || m.learnt || q.Verdict == isSettled
	if decides && n.Lost && (n.True.Issued|n.True.Settled)&^n.True.Undone&^known != 0 {
		n.Blind = true
	}
	switch {
	case m.fresh:
		x.judgeGrant(n, m, known)
		n.True.Issued |= setOf(q.ID)
		n.True.Undone &^= setOf(q.ID)
		n.True.Token = max(n.True.Token, q.Token)
	case q.Verdict == isSettled:
		n.True.Settled |= setOf(q.ID)
		m.s.Told |= setOf(q.ID)
		q.Knows.Told |= setOf(q.ID)
		switch {
		case q.How != skipped:
		case q.Waited:
			n.Broken = brokenSkipped
		case q.First && x.PerTick == 1 && !n.Lost && !n.Split && !x.waitsBefore(n, q.ID.work()):
			n.Broken = brokenQueue
		}
	}
}

// waitsBefore returns whether a tick before this one is neither granted nor settled.
func (x *steps) waitsBefore(n *State, tick int) bool {
	for w := 1; w < tick; w++ {
		granted := n.True.Runs[w] > 0 || (n.True.Issued&^n.True.Undone)&idsFor[w] != 0
		if !granted && n.True.Outcomes[w] == 0 && n.True.Settled&idsFor[w] == 0 {
			return true
		}
	}
	return false
}

func (x *steps) judgeGrant(n *State, m *machine, known IDs) {
	q, w := m.q, m.q.ID.work()
	grows := q.Token > n.True.Token || n.Lost && m.now*perUnit <= n.True.Token // after a loss only when the clock is past the last one
	grows = grows || n.Split && x.Acked                                        // a grant that was not acknowledged does not count
	switch {
	case m.q.tick() > 0 && m.now < x.At[w]: // an adopted one was granted once
		n.Broken = brokenEarly
	case !grows:
		n.Broken = brokenFenced
	case m.twice:
		n.Broken = brokenAttempt
	case m.q.tick() > 0 && bits.OnesCount16(uint16(n.True.Started&known&idsFor[w])) >= x.PerTick:
		n.Broken = brokenOnce
	case bits.OnesCount16(uint16(n.alive()&known)) >= x.Slots:
		n.Broken = brokenExclusive
	}
}

// judgeRow looks for rows of released leases, and for leases that are lost without need; was is the row that a renewal found.
func (x *steps) judgeRow(n *State, m *machine, was Row) {
	q, id := m.q, setOf(m.q.ID)
	if q.Kind == release && q.Undo && n.True.Issued&id != 0 {
		n.True.Undone |= id
	}
	if q.Kind != renewal {
		return
	}
	if r := m.row(); r != nil && m.s.Released&id != 0 {
		n.Broken = brokenGhost
	}
	if is := m.s.Rows[q.Slot]; is.ID == q.ID && was.Token > is.Token {
		n.Broken = brokenRow
	}
	if x.Acked && n.Split && q.To == 0 { // the replies of a master that was replaced do not count
		return
	}
	k := &n.Replicas[q.ID.owner()].Work[q.ID.work()]
	free := m.s.Rows[q.Slot].ID == 0 && m.s.Newest[q.Slot] < q.Token && (m.s.Orphans[0]|m.s.Orphans[1])&id == 0
	if q.Verdict == isLost && free && m.s.Released&id == 0 && k.Phase == running && k.Deadline > n.Now {
		n.Broken = brokenHolder
	}
}

// alive is the set of leases whose processes run. A machine that sleeps runs nothing.
func (s *State) alive() (ids IDs) {
	for r := range s.Replicas {
		if s.Replicas[r].Mode == asleep {
			continue
		}
		for w, k := range s.Replicas[r].Work {
			if k.Alive {
				ids |= setOf(newID(r, w, int(k.Generation)))
			}
		}
	}
	return ids
}

// pass lets a unit of time pass. A replica that waits for a reply then gives up waiting, and leases end.
func (x *steps) pass() {
	if x.from.Now == x.Horizon {
		return
	}
	n := *x.from
	n.Now++
	overdue := 0
	for i := range n.Net {
		if x.overdue(&n, i) && x.from.Now <= n.Net[i].Sent+x.Timeout { // else its replica stood still
			overdue++
		}
	}
	if overdue > int(n.Left.Silences) {
		return
	}
	n.Left.Silences -= uint8(overdue)
	for i := range n.Net {
		m := &x.from.Net[i]
		if n.Left.Strays > 0 && x.overdue(&n, i) && m.Phase == underway {
			late := n
			late.Left.Strays--
			x.timeOut(&late, i)
			x.emit(Step{Act: timePassesWithStray, Net: uint8(i)}, &late)
		}
	}
	x.timeOut(&n, -1)
	x.emit(Step{Act: timePasses}, &n)
}

func (x *steps) overdue(n *State, i int) bool {
	m := &x.from.Net[i]
	return m.Kind != 0 && m.Phase != stray && n.Now > m.Sent+x.Timeout && n.Replicas[m.ID.owner()].Mode == up
}

// timeOut ends the wait for overdue replies; the request in the message kept stays in the network.
func (x *steps) timeOut(n *State, kept int) {
	for i := range n.Net {
		m := n.Net[i]
		if !x.overdue(n, i) {
			continue
		}
		n.Net[i] = Message{}
		if i == kept {
			m.Phase = stray
			n.Net[i] = m
		}
		x.unheard(n, &m)
	}
	x.expire(n)
}

// expire ends the leases whose deadline has passed: the replica does it if it can, else the warden.
func (x *steps) expire(n *State) {
	for r := range n.Replicas {
		p := &n.Replicas[r]
		for w := range p.Work {
			k := &p.Work[w]
			k.Rests = false
			switch {
			case k.Phase != running || k.Deadline > n.Now || p.Mode == asleep || p.Mode == dead:
			case p.Mode == up:
				*k = x.interrupted(k)
			case x.Warden:
				k.Alive = false
			}
		}
	}
	x.drop(n)
}

// drop removes strays that the server would refuse for sure.
func (x *steps) drop(n *State) {
	for i := range n.Net {
		m := &n.Net[i]
		if m.Phase == stray && m.Kind != 0 && m.Kind != release && x.NotAfter && n.Left.StepsBack == 0 && n.Now-n.Back > m.Until {
			*m = Message{}
		}
	}
}
