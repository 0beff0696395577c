package engine_test

import (
	"cmp"
	"maps"
)

// model is what the rules say, with the ledger as a plain set of ticks: no low that stands for all before it, no
// entries that come and go. Ticks are numbered from 0; -1 is no tick.
type model struct {
	rows    map[int]held      // by slot
	orphans map[string]held   // by lease id
	dead    map[string]string // released ids, and the verdict
	ticks   map[int]*entry
	floor   int64
	decided int // every tick up to it is, or was before it was given back
	closed  bool
	known   bool // the schedule
	all     bool // the schedule began after all ticks
	last    settlement
}

type held struct {
	id, of    string // of: the orphan that was adopted
	heir      *held  // that orphan
	slot      int
	token     int64
	tick      int
	attempt   int
	abandoned bool // an orphan's tick stays decided
}

type entry struct {
	how   string       // why it is decided; "" if it is not
	slots map[int]bool // where it was granted, and not given back
	only  map[int]bool // decided, but these slots were given back
	back  bool         // all that was granted was given back
	ahead bool         // decided out of turn: it takes part when its turn comes
}

type settlement struct {
	tick    int
	id, how string
}

func newModel() *model {
	return &model{rows: map[int]held{}, orphans: map[string]held{}, dead: map[string]string{}, ticks: map[int]*entry{},
		decided: -1, last: settlement{tick: -1}}
}

// flush forgets all but the tombstones, which the test leaves in place.
func (m *model) flush() {
	dead := m.dead
	*m = *newModel()
	m.dead = dead
}

func (m *model) tick(n int) *entry {
	e, ok := m.ticks[n]
	if !ok {
		e = &entry{slots: map[int]bool{}}
		m.ticks[n] = e
	}
	return e
}

// began reports whether a tick has a grant that was not given back.
func (e *entry) began() bool { return e.how == "" && len(e.slots) > 0 || len(e.only) > 0 }

// open reports whether a tick was given back, and can be granted again.
func (e *entry) open() bool { return e.back || len(e.only) > 0 }

// ask is a request as the model sees it.
type ask struct {
	id                           string
	tick, slots, perTick         int
	early, late, ifHeld, abstain bool
	adopt                        string
}

// answer is the reply that it must get.
type answer struct {
	verdict string
	row     held
	outcome string // may be unknown
}

func (m *model) acquire(a ask, w *memory) answer {
	if _, ok := m.dead[a.id]; ok {
		return answer{verdict: "dead"}
	}
	for _, row := range m.rows {
		if row.id == a.id {
			return answer{verdict: "granted", row: row}
		}
	}
	if a.early {
		if a.tick >= 0 && !m.known { // the claim announces its schedule
			m.remember(w)
			m.known, m.all = true, m.decided < 0
		}
		return answer{verdict: "early"}
	}
	m.remember(w)
	if m.closed {
		return answer{verdict: "closed"}
	}
	own, ok := m.orphans[a.id]
	if ok && own.attempt == 1 && a.adopt == "" { // its grant has not been heard of
		return answer{verdict: "unheard"}
	}
	e := &entry{}
	if a.tick >= 0 {
		if e = m.tick(a.tick); !m.known {
			m.known, m.all = true, m.decided < 0
		}
		if got, over := m.over(a, e); over {
			return got
		}
	}
	return m.grant(a, e)
}

// over returns the answer for a tick that is not to be granted any more.
func (m *model) over(a ask, e *entry) (answer, bool) {
	switch {
	case m.all, e.how != "" && len(e.only) == 0:
		if !m.all && m.last == (settlement{a.tick, a.id, e.how}) && e.how != "granted" {
			return answer{verdict: "settled", outcome: e.how}, true
		}
		return answer{verdict: "decided", outcome: e.how}, true
	case a.tick <= m.decided && !e.open() && e.began(): // it was decided for less per tick, opened by an undo, and granted again
		return answer{verdict: "decided", outcome: "granted"}, true
	case a.late && e.began():
		m.decide(a, e, "granted")
		return answer{verdict: "decided", outcome: "granted"}, true
	case a.late:
		m.decide(a, e, "late")
		return answer{verdict: "settled", outcome: "late"}, true
	}
	return answer{}, false
}

func (m *model) grant(a ask, e *entry) answer {
	slot := m.free(a, e)
	switch {
	case slot < 0 && a.tick >= 0 && a.ifHeld && !e.began():
		m.decide(a, e, "skipped")
		return answer{verdict: "settled", outcome: "skipped"}
	case slot < 0 || a.abstain:
		return answer{verdict: "held"}
	}
	row := held{id: a.id, slot: slot, tick: a.tick, attempt: 1}
	if a.adopt != "" {
		orphan, ok := m.orphans[a.adopt]
		if !ok {
			return answer{verdict: "decided", outcome: "adopted"}
		}
		delete(m.orphans, a.adopt)
		row.tick, row.attempt, row.of, row.heir = orphan.tick, orphan.attempt+1, a.adopt, &orphan
	}
	m.rows[slot] = row
	switch {
	case a.tick < 0:
	case len(e.only) > 0:
		if delete(e.only, slot); len(e.only) == 0 {
			m.decide(a, e, "granted")
		}
	default:
		if e.slots[slot], e.back = true, false; len(e.slots) == a.perTick {
			m.decide(a, e, "granted")
		}
		m.advance()
	}
	return answer{verdict: "granted", row: row}
}

// free is the lowest slot that a request may have, or -1.
func (m *model) free(a ask, e *entry) int {
	if len(m.rows) >= a.slots {
		return -1
	}
	for s := range a.slots {
		if _, taken := m.rows[s]; taken || len(e.only) > 0 && !e.only[s] || e.how == "" && e.slots[s] {
			continue
		}
		return s
	}
	return -1
}

func (m *model) decide(a ask, e *entry, how string) {
	*e = entry{how: how, slots: map[int]bool{}, ahead: true}
	m.last = settlement{a.tick, a.id, how}
	m.advance()
}

func (m *model) advance() {
	for e := m.ticks[m.decided+1]; e != nil && e.ahead; e = m.ticks[m.decided+1] {
		m.decided++
	}
}

// expire ends a lease: its run is an orphan.
func (m *model) expire(slot int) {
	row := m.rows[slot]
	delete(m.rows, slot)
	m.orphans[row.id] = held{id: row.id, slot: row.slot, token: row.token, tick: row.tick, attempt: row.attempt}
}

// abandon keeps the tick of an orphan decided.
func (m *model) abandon(id string) {
	row := m.orphans[id]
	row.abandoned = true
	m.orphans[id] = row
}

// release ends a lease. With "give back" its run never started; with "leave" another replica carries it on after the given attempt, the last that began.
func (m *model) release(id string, perTick int, how string, attempt int) (verdict string) {
	if verdict, ok := m.dead[id]; ok {
		return verdict
	}
	verdict = "gone"
	row, ok := m.orphans[id]
	for slot, r := range m.rows {
		if r.id == id {
			row, ok, verdict = r, true, "released"
			if how == "leave" { // an orphan keeps the attempt that was recorded
				row.attempt = attempt
			}
			delete(m.rows, slot)
		}
	}
	m.dead[id] = verdict
	back := how == "give back"
	switch {
	case ok && how == "leave":
		m.orphans[id] = held{id: id, slot: row.slot, token: row.token, tick: row.tick, attempt: row.attempt, abandoned: true}
		return verdict
	case ok && back && row.heir != nil:
		m.orphans[row.of] = *row.heir
	case ok && back && (row.attempt > 1 || row.abandoned):
		return verdict
	case ok && back && row.tick >= 0:
		m.reopen(row, perTick)
	}
	delete(m.orphans, id)
	return verdict
}

func (m *model) reopen(row held, perTick int) {
	e := m.tick(row.tick)
	switch {
	case e.how == "" && len(e.slots) > 0:
		delete(e.slots, row.slot)
		e.back = len(e.slots) == 0
	case perTick > 1:
		if e.only == nil {
			e.only = map[int]bool{}
		}
		e.only[row.slot] = true
	default:
		*e = entry{slots: map[int]bool{}, back: true, ahead: true}
	}
	if row.tick > m.decided {
		e.ahead = false
	}
}

// memory is the state that a client has observed: every tick up to decided, and the others that it has heard of.
type memory struct {
	floor   int64
	decided int
	told    []map[int]entry
}

func newMemory() *memory { return &memory{decided: -1} }

// hear takes in a reply.
func (w *memory) hear(m *model) {
	news := map[int]entry{}
	for n, e := range m.ticks {
		if e.open() || n > m.decided && (e.how != "" || e.began()) {
			news[n] = entry{how: e.how, slots: maps.Clone(e.slots), only: maps.Clone(e.only), back: e.back}
		}
	}
	switch {
	case m.floor >= w.floor && m.decided >= w.decided:
		*w = memory{m.floor, m.decided, []map[int]entry{news}}
	case m.floor <= w.floor && m.decided <= w.decided:
	default:
		*w = memory{max(m.floor, w.floor), max(m.decided, w.decided), append(w.told, news)}
	}
}

// remember takes over what a client has observed and the server has forgotten. In doubt a tick is decided.
func (m *model) remember(w *memory) {
	if w.floor <= m.floor && w.decided <= m.decided {
		return
	}
	m.floor, m.closed, m.decided = max(m.floor, w.floor), true, max(m.decided, w.decided)
	open := map[int]bool{}
	for _, told := range w.told {
		for n, known := range told {
			e := m.tick(n)
			switch {
			case known.open() && e.open() && maps.Equal(known.only, e.only):
				open[n] = true
			case len(known.only) > 0:
				e.settled("granted")
			case known.open():
			case n <= m.decided || known.how != "":
				e.settled(known.how)
			case len(e.only) > 0:
				e.settled("granted")
			case e.how == "":
				e.how, e.only, e.back = "", nil, false
				maps.Copy(e.slots, known.slots)
			}
		}
	}
	for n := range m.decided + 1 {
		e := m.tick(n)
		if !e.open() || n <= w.decided && !open[n] {
			e.settled("")
		}
		e.ahead = true
	}
}

// settled decides a tick by what a client has observed.
func (e *entry) settled(how string) {
	if e.how == "" || e.open() {
		*e = entry{how: cmp.Or(how, "granted"), slots: map[int]bool{}, ahead: true}
	}
}
