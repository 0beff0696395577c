package model

// Pause is the newest statement about a pause. The zero value is that of a lock that was never paused.
type Pause struct {
	Said  uint8 // when, in the unit of tokens: no two statements are of the same moment
	From  uint8
	Until uint8 // 0: until it is ended
}

func (p Pause) on(now uint8) bool { return p.Said > 0 && (p.Until == 0 || now < p.Until) }

// newer returns the later of two statements.
func (p Pause) newer(q Pause) Pause {
	if q.Said > p.Said {
		return q
	}
	return p
}

// settles returns whether the pause settles a tick: one of paused time, whenever it is claimed, and any that is
// claimed during the pause, unless it was too late before.
func (p Pause) settles(at, deadline, now uint8) bool {
	return p.on(at) && at >= p.From || p.on(now) && deadline >= min(p.From, now)
}

// pausedAt returns the same by the server's statement, as far as the rules say so: stopped in lua/acquire.lua.
func (m *machine) pausedAt(tick int) bool {
	p, at := m.s.Pause, m.At[tick]
	deadline := at + m.StartWithin
	if !m.LateBeforePaused {
		deadline = max(deadline, p.From)
	}
	return m.PauseSettles && p.settles(at, deadline, m.now) && (m.PausedTimeStays || p.on(m.now))
}

// rememberPause takes over a later statement.
func (m *machine) rememberPause() {
	told := m.q.Knows.Pause
	if m.PauseIsCarried && told.Said > 0 && (told.Said > m.s.Pause.Said || !m.LaterStatementCounts) {
		m.s.Pause = told
	}
}

// word returns the pause after a statement that is made now: lua/pause.lua. length 0 is until it is ended.
func (p Pause) word(end bool, length, now uint8) Pause {
	on := p.on(now)
	if !on && !(end && p.Said > 0) {
		p.From = now
	}
	switch {
	case !end && length == 0:
		p.Until = 0
	case !end:
		p.Until = now + length
	case on || p.Said == 0:
		p.Until = max(now, p.From)
	}
	p.Said = max(now*perUnit, p.Said+1)
	return p
}

// pauses lets a command pause the lock, or end the pause. The message reaches all replicas that are up, or none.
func (x *steps) pauses() {
	now := x.from.Now - x.from.Back
	if now == 0 || x.from.Split { // an end of 0 is none
		return
	}
	for _, heard := range []bool{false, true} {
		x.say(isPaused, false, heard)
		if x.from.True.Pause.on(now) {
			x.say(isResumed, true, heard)
		}
	}
}

// say has one fault less to come, and a new statement about the pause.
func (x *steps) say(act Act, end, heard bool) {
	now := x.from.Now - x.from.Back
	word := x.from.Servers[0].Pause.word(end, x.PauseFor, now)
	if word.Said <= x.from.True.Pause.Said { // the clock is past the last statement, as it is past the last token
		return
	}
	left := func(f *Faults) *uint8 { return &f.Pauses }
	if end {
		left = func(f *Faults) *uint8 { return &f.Resumes }
	}
	x.fault(act, 0, left, func(n *State) {
		n.True.Pause = word
		if end && !x.EndIsKept {
			word = Pause{}
		}
		n.Servers[0].Pause = word
		for r := range n.Replicas {
			if p := &n.Replicas[r]; heard && p.Mode == up && word.Said > 0 {
				p.Knows.Pause = word
			}
		}
	})
}

// judgePause checks a claim's result against the pause, if the server or the claimant knew its newest statement.
func (x *steps) judgePause(n *State, m *machine, known Pause) {
	tick, p := m.q.tick(), n.True.Pause
	if tick == 0 || p.Said == 0 || known != p {
		return
	}
	is := p.settles(x.At[tick], x.At[tick]+x.StartWithin, m.now)
	if m.fresh && is || m.settled && (m.q.How == paused) != is {
		n.Broken = brokenPause
	}
}
