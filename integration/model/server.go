package model

// machine is one execution of a script, with the state that lua/state.lua gives each of them.
type machine struct {
	*Setup
	*Rules
	s   *Server
	q   *Message
	now uint8 // the server's clock

	fresh   bool // a new grant was made
	twice   bool // to a recovery of an orphan that has one
	settled bool // a tick was, and not before
	learnt  bool // the schedule was new
}

// decided returns whether a tick is refused for good.
func (s *Server) decided(tick int, at uint8) bool {
	e := s.Ledger[tick].state()
	return tick <= int(s.Low) && e != open || at <= s.Since || e == done
}

func (m *machine) decided(tick int) bool { return m.s.decided(tick, m.At[tick]) }

func (m *machine) row() *Row {
	for i := range m.s.Rows {
		if m.s.Rows[i].ID == m.q.ID {
			return &m.s.Rows[i]
		}
	}
	return nil
}

func (m *machine) late() bool { return m.NotAfter && m.now > m.q.Until }

// wasReleased returns whether this id was released.
func (m *machine) wasReleased() bool { return m.Tombstones && m.s.Tombs[m.q.ID]&^gone > m.now }

// purge makes room: rows whose lease has ended become orphans.
func (m *machine) purge() {
	for i, r := range m.s.Rows {
		if r.ID != 0 && r.Expiry <= m.now {
			if m.s.Rows[i] = (Row{}); !m.OnlyClaimantReopens && r.ID.work() > 0 {
				m.reopen(r.ID.work(), i)
				continue
			}
			m.s.orphan(r.ID, i, r.Attempt)
		}
	}
}

// joins returns whether low may move up to a tick, as far as the tick before it is concerned.
func (m *machine) joins(tick int) bool {
	return !m.LowWithoutGaps || tick-1 <= int(m.s.Low) || m.At[tick-1] <= m.s.Since
}

// decide makes a tick decided for good.
func (m *machine) decide(tick int, how Outcome) {
	switch {
	case tick > int(m.s.Low) && m.joins(tick):
		m.s.Low = uint8(tick)
	case tick > int(m.s.Low):
		m.s.Ledger[tick] = newEntry(done, how, 0)
	}
	if tick <= int(m.s.Low) {
		m.s.Ledger[tick] = 0
	}
	m.advance()
	m.s.Last = Settlement{uint8(tick), how, m.q.ID}
}

// advance drops the entries of ticks that follow low without a gap and are decided.
func (m *machine) advance() {
	for moved := true; moved; {
		moved = false
		for tick := 1; tick <= m.Ticks; tick++ {
			e := m.s.Ledger[tick]
			if e.state() == done && tick > int(m.s.Low) && m.joins(tick) {
				m.s.Low, moved = uint8(tick), true
			}
			if e.state() != open && tick <= int(m.s.Low) {
				m.s.Ledger[tick] = 0
			}
		}
	}
}

// remember takes over the observed state of a client if the server knows less, and closes the lock to new grants.
func (m *machine) remember(closes bool) {
	w, s := &m.q.Knows, m.s
	s.Told |= w.Told // independent of the numbers
	m.rememberPause()
	if w.Floor <= s.Floor && w.Low <= s.Low && !m.missesOutOfTurn() {
		return
	}
	s.Floor, s.Low, s.Longest = max(s.Floor, w.Floor), max(s.Low, w.Low), max(s.Longest, w.Longest)
	var still Ledger // given back, as both say
	for _, ledger := range w.Ledgers[:w.Layers] {
		for tick, told := range ledger {
			known := s.Ledger[tick]
			switch {
			case told == 0:
			case told.state() != open:
				m.recall(tick, told)
			case known == told:
				still[tick] = told
			case told.slots() != 0:
				m.recall(tick, newEntry(done, granted, 0))
			}
		}
	}
	for tick := range s.Ledger { // it was decided since, for the last time
		if tick <= int(w.Low) && still[tick] == 0 {
			s.Ledger[tick] = 0
		}
	}
	if m.ForgottenCloses && closes {
		s.Closed = max(s.Closed, m.now+s.Longest)
	}
}

// missesOutOfTurn returns whether the server lacks a tick that was decided behind one that is open.
func (m *machine) missesOutOfTurn() bool {
	w := &m.q.Knows
	for _, ledger := range w.Ledgers[:w.Layers] {
		for tick, told := range ledger {
			if m.OutOfTurnIsCarried && told.state() == done && tick > int(m.s.Low) && m.s.Ledger[tick] == 0 {
				return true
			}
		}
	}
	return false
}

// recall takes over a client's entry of one tick. In doubt a tick is decided, and a slot used.
func (m *machine) recall(tick int, told Entry) {
	known := m.s.Ledger[tick]
	if known.state() == open && known.slots() != 0 {
		told = newEntry(done, granted, 0)
	}
	switch {
	case tick <= int(m.s.Low):
		if known.state() == open {
			m.s.Ledger[tick] = 0
		}
	case known.state() == part && told.state() == part:
		m.s.Ledger[tick] = newEntry(part, 0, known.slots()|told.slots())
	case known.state() != done:
		m.s.Ledger[tick] = told
	}
}

// know lets a schedule that the server does not know begin now, unless the client carries its ledger.
func (m *machine) know() {
	if m.s.Known {
		return
	}
	m.s.Known, m.learnt = true, true
	if m.s.Low == 0 && !(m.ScheduleIsCarried && m.q.Knows.Schedule) {
		m.s.Since = m.now
	}
}

// execute runs the script of a request, and makes its message the reply.
func (m *machine) execute() {
	switch m.q.Kind {
	case claim:
		m.q.Verdict = m.acquire()
	case renewal:
		m.q.Verdict = m.renew()
	case release:
		m.q.Verdict = m.release()
	}
	m.q.Phase = answered
	m.report()
}

// report puts the server's knowledge into the reply.
func (m *machine) report() {
	k := Knowledge{Floor: m.s.Floor, Longest: m.s.Longest, Low: m.s.Low, Told: m.s.Told, Pause: m.s.Pause, Schedule: m.s.Known && m.ScheduleIsCarried}
	if m.RepliesCarryLedger && m.s.Ledger != (Ledger{}) {
		k.Layers, k.Ledgers[0] = 1, m.s.Ledger
	}
	if m.q.Verdict == isLate || m.q.Verdict == isDead { // refused before the lock was looked at
		k = Knowledge{}
	}
	m.q.Knows = k
}
