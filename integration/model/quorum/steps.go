package quorum

// steps returns all that can happen next. The next call overwrites it.
func (x *search) steps(s state) []successor {
	x.next = x.next[:0]
	for i, m := range s.net {
		if m.kind == 0 {
			continue
		}
		to := s
		to.net[i] = message{}
		x.deliver(&to, m, true)
		x.add(to, "%v", m)
		if s.losses < x.setup.Losses {
			lost := s
			lost.net[i], lost.losses, lost.dropped = message{}, s.losses+1, true
			x.add(lost, "lost: %v", m)
			unheard := s
			unheard.net[i], unheard.losses, unheard.dropped = message{}, s.losses+1, true
			x.deliver(&unheard, m, false)
			x.add(unheard, "%v; its reply is lost", m)
		}
	}
	if s.time < x.setup.Horizon {
		to := s
		to.time++
		x.timeOut(&to)
		x.add(to, "time passes", nil)
	}
	x.nodeSteps(s)
	x.claimantSteps(s)
	return x.next
}

// add adds a successor. Its description is made only for the schedules that are shown: there are millions of successors.
func (x *search) add(to state, format string, of any) {
	x.check(&to)
	to.canonical()
	x.next = append(x.next, successor{to, format, of})
}

func (x *search) nodeSteps(s state) {
	silent := 0
	for n := range s.nodes {
		if s.nodes[n].silent {
			silent++
		}
	}
	for n, node := range s.nodes {
		if s.forgets < x.setup.Forgets && !node.silent {
			to := s
			to.nodes[n] = fresh(s.time, x.setup.Rules.ForgottenIsSilent || !x.setup.Rules.QuietBeginning)
			to.forgets++
			x.add(to, "node %d forgets", n+1)
		}
		if x.mayBegin(s, n) && silent >= majority {
			to := s
			begin := 0
			for i := range to.nodes {
				if i == n || begin < majority-1 && x.mayBegin(s, i) {
					to.nodes[i].silent = false
					begin++
				}
			}
			if begin >= majority {
				x.add(to, "a majority that seems new begins, with node %d", n+1)
			}
		}
		if !node.silent || s.time < node.since+lease || nodes-silent < majority {
			continue
		}
		to := s
		joined := &to.nodes[n]
		joined.silent = false
		if x.setup.Rules.Reseeded {
			x.reseed(&to, n)
		}
		x.add(to, "node %d votes again", n+1)
	}
}

// mayBegin returns whether a node may be one of those with which a quorum begins.
func (x *search) mayBegin(s state, n int) bool {
	node := s.nodes[n]
	if !x.setup.Rules.QuietBeginning {
		return node.silent
	}
	return node.silent && node.floor == 0 && node.ballot == 0 && node.rows == [slots]row{} && s.time >= node.since+lease
}

func fresh(time uint8, silent bool) node { return node{silent: silent, since: time} }

// reseed writes the values of a majority of the others once more, there and on the node that joins.
func (x *search) reseed(s *state, n int) {
	var floor, ballot, value uint8
	for i, node := range s.nodes {
		if i == n || node.silent {
			continue
		}
		floor = max(floor, node.floor)
		if node.ballot >= ballot {
			ballot, value = node.ballot, node.value
		}
	}
	for i := range s.nodes {
		if i == n || !s.nodes[i].silent {
			s.nodes[i].floor, s.nodes[i].ballot, s.nodes[i].value = floor+1, floor+1, value
		}
	}
}

func (x *search) claimantSteps(s state) {
	for who := uint8(1); int(who) <= x.setup.Claimants; who++ {
		c := s.claimants[who]
		name := 'A' + who - 1
		looker := x.setup.LooksForDead && int(who) == x.setup.Claimants
		switch {
		case c.phase == idle && looker && !s.claimants[1].granted: // there is no run to look for
		case c.phase == idle && looker:
			to := s
			to.claimants[who].phase, to.claimants[who].sent = looking, s.time
			if x.ask(&to, who, inspect) {
				x.add(to, "%c looks for the dead", name)
			}
		case c.phase == idle:
			to := s
			if x.begin(&to, who) {
				x.add(to, "%c claims", name)
			}
		case x.setup.GivesUp && (c.phase == claiming || c.phase == preparing || c.phase == accepting):
			to := s
			x.giveUp(&to, who)
			x.add(to, "%c gives up", name)
		case c.phase == holding && c.until > s.time && x.setup.Renews && !s.flying(who, renew):
			to := s
			to.claimants[who].renewing, to.claimants[who].sent = 0, s.time
			if x.ask(&to, who, renew) {
				x.add(to, "%c renews", name)
			}
		}
		if c.phase == holding && !x.setup.Renews {
			to := s
			x.giveUp(&to, who)
			x.add(to, "%c releases", name)
		}
		if c.phase != over && c.phase != idle && s.deaths < x.setup.Deaths {
			to := s
			to.deaths, to.dropped = s.deaths+1, true
			to.claimants[who].phase, to.claimants[who].until = over, min(c.until, s.time)
			x.add(to, "%c dies", name)
		}
	}
}

func (s *state) flying(who uint8, k kind) bool {
	for _, m := range s.net {
		if m.kind == k && m.who == who {
			return true
		}
	}
	return false
}

// begin proposes a token.
func (x *search) begin(s *state, who uint8) bool {
	c := &s.claimants[who]
	c.token = max(c.floor+1, s.time*perUnit+who)
	c.phase, c.yes, c.no, c.ballot, c.value, c.sent = claiming, 0, 0, 0, 0, s.time
	return x.ask(s, who, claim)
}

// ask sends a request to all nodes.
func (x *search) ask(s *state, who uint8, k kind) bool {
	c := s.claimants[who]
	for n := range uint8(nodes) {
		if !s.send(message{kind: k, who: who, node: n, token: c.token, value: c.write, slot: c.slot, sent: s.time}) {
			return false
		}
	}
	return true
}

// timeOut voids messages that are too late to be executed, and ends the waiting for them.
func (x *search) timeOut(s *state) {
	for i, m := range s.net {
		if m.kind != 0 && s.time > m.sent+1 {
			s.net[i] = message{}
		}
	}
	for who := uint8(1); int(who) <= x.setup.Claimants; who++ {
		c := s.claimants[who]
		if c.phase != over && c.phase != idle && c.phase != holding && s.time > c.sent+1 {
			x.giveUp(s, who)
		}
	}
}

// giveUp takes back grants of nodes, also for requests that are still on their way. It takes no time here: its
// duration breaks no promise.
func (x *search) giveUp(s *state, who uint8) {
	c := &s.claimants[who]
	c.phase, c.until = over, 0
	if !x.setup.Rules.DropStragglers {
		return
	}
	for i := range s.nodes {
		s.nodes[i].drop(who, c.token)
	}
	for i := range s.net { // the tombstones refuse these
		if m := s.net[i]; m.who == who && m.kind != accept {
			s.net[i] = message{}
		}
	}
}
