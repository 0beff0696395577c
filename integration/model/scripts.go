package model

import "math/bits"

// acquire grants a row of the lock, or says why not: lua/acquire.lua. The order of the checks is part of the protocol.
func (m *machine) acquire() Verdict {
	if m.late() {
		return isLate
	}
	if m.wasReleased() {
		return isDead
	}
	if r := m.row(); m.SameGrantAgain && r != nil && r.Expiry > m.now {
		return m.grant(r)
	}
	tick := m.q.tick()
	if m.NeverEarly && tick > 0 && m.At[tick] > m.now {
		if !m.s.Known { // announced by this claim
			m.remember(true)
			m.know()
		}
		return isEarly
	}
	m.remember(true)
	m.purge()
	if m.s.Closed > m.now {
		return isClosed
	}
	if m.q.Adopt == 0 && m.OwnOrphanIsUnheard && m.s.attempt(m.q.ID) == 1 {
		return isUnheard
	}
	if tick == 0 {
		return m.take(0, 0, false)
	}
	m.know()
	if m.LedgerOfTicks && m.decided(tick) {
		return m.refuse(tick)
	}
	entry := m.s.Ledger[tick]
	late := m.now > m.At[tick]+m.StartWithin
	if m.pausedAt(tick) && (m.PausedNotLate || !late) {
		return m.settle(tick, paused, entry)
	}
	if late {
		return m.settle(tick, missed, entry)
	}
	back := entry.state() == open && entry.slots() != 0
	if entry.state() == part && bits.OnesCount8(entry.slots()) >= m.PerTick {
		return m.settle(tick, noOutcome, entry)
	}
	return m.take(tick, entry, back)
}

// grant puts a row into the reply.
func (m *machine) grant(r *Row) Verdict {
	for i := range m.s.Rows {
		if &m.s.Rows[i] == r {
			m.q.Slot = uint8(i)
		}
	}
	m.q.Token, m.q.Left, m.q.Attempt = r.Token, r.Expiry-m.now, r.Attempt
	return isGranted
}

// refuse answers with the outcome of a tick, as far as it is still known.
func (m *machine) refuse(tick int) Verdict {
	how, by := noOutcome, ID(0)
	if int(m.s.Last.Tick) == tick {
		how, by = m.s.Last.How, m.s.Last.By
	}
	switch e := m.s.Ledger[tick]; e.state() {
	case done:
		how = e.how()
	case part:
		how = granted
	case open:
		how = noOutcome
	}
	m.q.How = how
	if by == m.q.ID && how != granted { // again, the first reply was lost
		return isSettled
	}
	return isDecided
}

// settle decides a tick without a run; one that has a grant was granted, though not as often as it may be.
func (m *machine) settle(tick int, how Outcome, entry Entry) Verdict {
	if m.SkipOnlyUnrun && entry.slots() != 0 {
		m.decide(tick, granted)
		m.q.How = granted
		return isDecided
	}
	m.decide(tick, how)
	m.q.How, m.settled = how, true
	return isSettled
}

// take grants the lowest free slot that the tick has not used yet.
func (m *machine) take(tick int, entry Entry, back bool) Verdict {
	slot, ok := m.free(entry, back)
	if !ok {
		keeps := m.q.First && m.FirstWaits && m.joins(tick)
		if tick > 0 && (entry.slots() == 0 || !m.SkipOnlyUnrun) && m.q.Skip && !keeps {
			return m.settle(tick, skipped, entry)
		}
		return isHeld
	}
	row := Row{ID: m.q.ID, Attempt: 1}
	if m.q.Adopt != 0 && !m.adopt(&row) {
		m.q.How = adopted
		return isDecided
	}
	token := max(m.s.Floor+1, m.now*perUnit)
	if !m.HybridTokens {
		token = m.s.Floor + 1
	}
	m.s.Floor, m.s.Longest = token, max(m.s.Longest, m.Lease)
	row.Token = token
	m.place(slot, row)
	m.fresh, m.s.Told = true, m.s.Told|setOf(m.q.ID)
	used := entry.slots() | 1<<slot
	switch {
	case tick == 0 || !m.LedgerOfTicks:
	case back && entry.slots() == 1<<slot:
		m.decide(tick, granted)
	case back:
		m.s.Ledger[tick] = newEntry(open, 0, entry.slots()&^(1<<slot))
	case bits.OnesCount8(used) >= m.PerTick:
		m.decide(tick, granted)
	default:
		m.s.Ledger[tick] = newEntry(part, 0, used)
		m.advance()
	}
	return m.grant(&m.s.Rows[slot])
}

// free returns the lowest slot for a tick: one that it has not used, or only one that was given back.
func (m *machine) free(entry Entry, back bool) (slot int, ok bool) {
	for i := range m.Slots {
		used := entry.slots()>>i&1 == 1
		if m.s.Rows[i].ID == 0 && used == back {
			return i, true
		}
	}
	return 0, false
}

func (m *machine) place(slot int, r Row) {
	r.Expiry = m.now + m.Lease
	m.s.Rows[slot] = r
	m.s.Newest[slot] = r.Token
}

// renew extends a lease, or puts its row back where the server has forgotten it: lua/renew.lua.
func (m *machine) renew() Verdict {
	if m.late() {
		return isLate
	}
	if m.wasReleased() {
		return isLost
	}
	m.remember(m.PutBackCloses)
	m.q.Left = m.Lease
	if r := &m.s.Rows[m.q.Slot]; r.ID == m.q.ID {
		r.Expiry, r.Attempt = m.now+m.Lease, max(r.Attempt, m.q.Attempt)
		return isRenewed
	}
	m.q.Left = 0
	other := m.row()
	if !m.mayPutBack() || other != nil && other.Token >= m.q.Token {
		return isLost
	}
	back := Row{ID: m.q.ID, Token: m.q.Token, Attempt: m.q.Attempt}
	if other != nil { // a lease id holds one row
		back.Adopted, back.From, back.Kept = other.Adopted, other.From, other.Kept
		*other = Row{}
	}
	m.place(int(m.q.Slot), back)
	m.dropRecovered()
	m.s.Floor, m.s.Longest = max(m.s.Floor, m.q.Token), max(m.s.Longest, m.Lease, m.q.Knows.Longest)
	if m.PutBackCloses {
		m.s.Closed = max(m.s.Closed, m.now+m.s.Longest)
	}
	m.q.Left = m.Lease
	return isRenewed
}

func (m *machine) mayPutBack() bool {
	switch {
	case !m.PutBackNeverOver:
		return true
	case (m.s.Orphans[0] | m.s.Orphans[1]).has(m.q.ID):
		return false
	case !m.PutBackBySlot:
		return m.s.Floor <= m.q.Token
	case !m.SlotRemembers:
		return m.s.Rows[m.q.Slot].Token < m.q.Token
	}
	return m.s.Newest[m.q.Slot] < m.q.Token
}

// release ends a lease and leaves a tombstone: lua/release.lua. With Undo the tick is open again, with Leave the run is an
// orphan.
func (m *machine) release() Verdict {
	if m.wasReleased() { // asked again: the same verdict, remembered anew
		m.s.Tombs[m.q.ID] = m.s.Tombs[m.q.ID]&gone | m.now + m.Tombstone
		return verdictOf(m.s.Tombs[m.q.ID])
	}
	tomb, id := m.now+m.Tombstone, setOf(m.q.ID)
	slot, row := m.drop()
	if row.ID == 0 {
		tomb |= gone
		slot, row = m.s.asOrphan(m.q.ID)
	}
	m.s.Tombs[m.q.ID], m.s.Released = tomb, m.s.Released|id
	m.depart(slot, row)
	return verdictOf(tomb)
}

// depart ends a run, given its row or its orphan, if there is one.
func (m *machine) depart(slot int, r Row) {
	ended := m.s.attempt(r.ID) > 0
	if r.ID == 0 {
		return
	}
	switch tick := r.ID.work(); {
	case m.q.Leave && (m.HandedOverStaysOrphan || !ended):
		m.s.orphan(r.ID, slot, max(r.Attempt, m.q.Attempt))
		m.s.Abandoned |= setOf(r.ID)
		return
	case m.q.Undo && r.Adopted != 0:
		m.giveBack(r)
	case m.q.Undo && r.Attempt > 1 && m.RecoveryOpensNoTick:
		return
	case m.q.Undo && ended && m.s.Abandoned.has(r.ID): // its tick stays decided
		return
	case m.q.Undo && tick > 0:
		m.reopen(tick, slot)
	}
	m.s.unorphan(r.ID)
}

func verdictOf(tomb uint8) Verdict {
	if tomb&gone != 0 {
		return isGone
	}
	return isReleased
}

// drop removes the row of the request's lease, if it is there.
func (m *machine) drop() (slot int, was Row) {
	for i, r := range m.s.Rows {
		if r.ID == m.q.ID {
			m.s.Rows[i] = Row{}
			return i, r
		}
	}
	return 0, Row{}
}

// reopen opens the tick of a run that never started. Of a fan-out that was decided, only this slot is.
func (m *machine) reopen(tick, slot int) {
	e := m.s.Ledger[tick]
	if e.state() == part {
		if left := e.slots() &^ (1 << slot); left != 0 {
			m.s.Ledger[tick] = newEntry(part, 0, left)
			return
		}
		m.s.Ledger[tick] = newEntry(open, 0, 0)
		return
	}
	slots := uint8(0)
	if m.PerTick > 1 {
		slots = 1 << slot
		if e.state() == open {
			slots |= e.slots()
		}
	}
	m.s.Ledger[tick] = newEntry(open, 0, slots)
}
