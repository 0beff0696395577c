package quorum

// deliver executes a message at its node, and lets its sender hear the reply.
func (x *search) deliver(s *state, m message, heard bool) {
	n := &s.nodes[m.node]
	yes := false
	switch {
	case m.kind == claim:
		yes = x.claimAt(s, n, &m)
	case m.kind == prepare:
		if yes = !n.silent && (m.token > n.floor || !x.setup.Rules.FloorPromises); yes {
			n.floor = max(n.floor, m.token)
		}
	case m.kind == accept:
		yes = x.acceptAt(s, n, m)
	case m.kind == renew:
		yes = n.renew(s.time, m) && (!n.silent || !x.setup.Rules.RenewalVotes)
	case m.kind == inspect:
		yes = x.isDeadAt(s, n)
	}
	if heard {
		x.hear(s, m, yes)
	}
}

func (n *node) free(slot, who, now uint8) bool {
	r := n.rows[slot]
	return r.who == 0 || r.who == who || r.expiry <= now
}

func (x *search) claimAt(s *state, n *node, m *message) bool {
	if n.silent || m.token <= max(n.dead[m.who], n.shut[m.who]) {
		return false
	}
	if !x.setup.Rules.SameRow {
		for m.slot = 0; int(m.slot) < x.setup.Slots && !n.free(m.slot, m.who, s.time); m.slot++ {
		}
		if int(m.slot) == x.setup.Slots {
			return false
		}
	}
	if !n.free(m.slot, m.who, s.time) || m.token <= n.floor && x.setup.Rules.FloorPromises {
		return false
	}
	if !x.setup.Rules.LedgerLast && x.setup.Ticks {
		if n.value != 0 && n.value != m.who {
			return false
		}
		n.value, n.ballot = m.who, m.token
	}
	n.floor = max(n.floor, m.token)
	n.rows[m.slot] = row{m.who, m.token, s.time + lease}
	return true
}

func (x *search) acceptAt(s *state, n *node, m message) bool {
	r := &n.rows[m.slot]
	held := r.who == m.who && r.expiry > s.time
	grant := m.value == m.who
	if x.setup.Rules.Conditional && (m.token < n.floor || grant && !held) {
		return false
	}
	n.floor = max(n.floor, m.token)
	n.ballot, n.value = m.token, m.value
	if grant && held {
		r.token, r.expiry = m.token, s.time+lease
	}
	return !n.silent
}

func (n *node) renew(now uint8, m message) bool {
	r := &n.rows[m.slot]
	if m.token <= max(n.dead[m.who], n.shut[m.who]) || !n.free(m.slot, m.who, now) {
		return false
	}
	*r = row{m.who, m.token, now + lease}
	n.floor = max(n.floor, m.token)
	return true
}

func (n *node) drop(who, token uint8) {
	n.dead[who] = max(n.dead[who], token)
	for i := range n.rows {
		if n.rows[i].who == who && n.rows[i].token <= token {
			n.rows[i] = row{}
		}
	}
}

// isDeadAt returns whether a node has no live row of A.
func (x *search) isDeadAt(s *state, n *node) bool {
	const whose = 1
	for _, r := range n.rows {
		if r.who == whose && r.expiry > s.time {
			return false
		}
	}
	if x.setup.Rules.ShutBeforeDeath {
		n.shut[whose] = s.claimants[whose].token
	}
	return true
}

// hear counts a vote, and goes on when the outcome is sure.
func (x *search) hear(s *state, m message, yes bool) {
	c := &s.claimants[m.who]
	n, bit := &s.nodes[m.node], uint8(1)<<m.node
	expects := map[kind]phase{claim: claiming, prepare: preparing, accept: accepting, renew: holding, inspect: looking}
	if c.phase != expects[m.kind] || m.token != c.token || c.phase == over {
		return
	}
	c.floor = max(c.floor, n.floor)
	if m.kind == renew {
		if c.until <= s.time { // one that comes too late revives nothing
			c.until = 0
			return
		}
		x.renewed(c, yes, bit)
		return
	}
	if yes {
		c.yes |= bit
	} else {
		c.no |= bit
	}
	if !n.silent && n.ballot >= c.ballot && n.ballot > 0 && m.kind != accept && (yes || m.kind == claim) {
		c.ballot, c.value = n.ballot, n.value
	}
	for i, r := range n.rows {
		if m.kind != accept && r.who != 0 && r.who != m.who && r.expiry > s.time {
			c.refusals[i] |= bit
		}
	}
	need := majority
	if m.kind == accept && !x.setup.Rules.AcceptMajority {
		need = 1
	}
	switch {
	case bits(c.yes) >= need:
		x.won(s, m.who)
	case bits(c.no) > nodes-majority:
		x.lost(s, m.who)
	}
}

// renewed extends a lease that is held.
func (x *search) renewed(c *claimant, yes bool, bit uint8) {
	if !yes {
		return
	}
	c.renewing |= bit
	if bits(c.renewing) >= majority || !x.setup.Rules.RenewMajority {
		c.until = max(c.until, c.sent+lease)
	}
}

func (x *search) won(s *state, who uint8) {
	c := &s.claimants[who]
	value := c.value
	if !x.setup.Rules.NewestValue {
		value = 0
	}
	switch c.phase {
	case looking:
		c.phase, s.declaredDead = over, 1
		return
	case claiming:
		if !x.setup.Ticks || !x.setup.Rules.LedgerLast {
			x.grant(s, who)
			return
		}
		if c.write = value; value == 0 {
			c.write = who
		}
	case preparing:
		if c.write = value; value == 0 {
			c.write = skipped
		}
	case accepting:
		if c.write == who {
			x.grant(s, who)
			return
		}
		c.told, c.outcome = true, c.write
		x.giveUp(s, who)
		return
	}
	c.phase, c.yes, c.no, c.sent = accepting, 0, 0, s.time
	if !x.ask(s, who, accept) {
		x.giveUp(s, who)
	}
}

func (x *search) grant(s *state, who uint8) {
	c := &s.claimants[who]
	c.until = c.sent + lease
	if c.until <= s.time {
		x.giveUp(s, who)
		return
	}
	if x.setup.Slots == 1 && c.token <= s.newest {
		s.broken = 4
	}
	s.newest = max(s.newest, c.token)
	c.phase, c.granted = holding, true
	if x.setup.Ticks {
		c.told, c.outcome = true, who
	}
}

func (x *search) lost(s *state, who uint8) {
	c := &s.claimants[who]
	if c.phase == looking {
		c.phase = over
		return
	}
	if c.phase == claiming && x.setup.Settles && bits(c.refusals[0]) >= majority {
		c.phase, c.yes, c.no, c.value, c.ballot = preparing, 0, 0, 0, 0
		c.token, c.sent = max(c.floor+1, s.time*perUnit+who), s.time
		if !x.ask(s, who, prepare) {
			x.giveUp(s, who)
		}
		return
	}
	if c.tries++; c.tries > x.setup.Tries {
		x.giveUp(s, who)
		return
	}
	if c.phase == claiming && x.setup.Slots > 1 {
		c.slot = 1 - c.slot
	}
	if !x.begin(s, who) {
		x.giveUp(s, who)
	}
}

// check records the promise that a state breaks.
func (x *search) check(s *state) {
	if s.broken > 0 {
		return
	}
	grants, holders := 0, 0
	var bySlot [slots]int
	var outcome uint8
	for who := 1; who <= x.setup.Claimants; who++ {
		c := s.claimants[who]
		if c.granted {
			grants++
		}
		if c.phase == holding && c.until > s.time {
			holders++
			bySlot[c.slot]++
		}
		if c.told && outcome != 0 && outcome != c.outcome {
			s.broken = 2
		}
		if c.told {
			outcome = c.outcome
		}
	}
	switch {
	case x.setup.Ticks && grants > 1:
		s.broken = 1
	case holders > x.setup.Slots || x.setup.Rules.SameRow && (bySlot[0] > 1 || bySlot[1] > 1):
		s.broken = 3
	case s.declaredDead != 0 && s.claimants[s.declaredDead].phase == holding && s.claimants[s.declaredDead].until > s.time:
		s.broken = 7
	case s.broken == 0 && !s.dropped && x.quiet(s):
		x.checkQuiet(s)
	}
}

// quiet returns whether no message is under way, and each claimant has given up or has its answer.
func (x *search) quiet(s *state) bool {
	for _, m := range s.net {
		if m.kind != 0 {
			return false
		}
	}
	for who := 1; who <= x.setup.Claimants; who++ {
		if c := s.claimants[who]; c.phase != over {
			return false
		}
	}
	return s.forgets == 0
}

func (x *search) checkQuiet(s *state) {
	known := map[uint8]int{}
	for _, n := range s.nodes {
		for _, r := range n.rows {
			if r.who != 0 && r.expiry > s.time && !s.claimants[r.who].granted {
				s.broken = 5
			}
		}
		if !n.silent && n.value != 0 {
			known[n.value]++
		}
	}
	for value := range known { // with the ledger last, a value that is there was written by a claimant that had the row on a majority
		if value != skipped && !x.setup.Rules.LedgerLast && !s.claimants[value].granted {
			s.broken = 6
		}
	}
}
