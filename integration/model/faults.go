package model

// faults emits the faults that are possible now, apart from those of the network.
func (x *steps) faults() {
	x.server()
	x.pauses()
	for r := range x.Replicas {
		x.replica(r)
	}
}

// fault emits a state with one fault less to come.
func (x *steps) fault(act Act, r int, left func(*Faults) *uint8, change func(n *State)) {
	if *left(&x.from.Left) == 0 {
		return
	}
	n := *x.from
	*left(&n.Left)--
	change(&n)
	x.done(act, r, 0, &n)
}

// server emits the faults of the servers and their clock.
func (x *steps) server() {
	if !x.from.Split {
		x.fault(forgets, 0, func(f *Faults) *uint8 { return &f.Flushes }, func(n *State) {
			n.Servers[0], n.Lost = Server{}, true
		})
		if x.from.Servers[0] != x.from.Servers[1] {
			x.fault(saves, 0, func(f *Faults) *uint8 { return &f.Saves }, (*State).replicate)
			x.fault(failsOver, 0, func(f *Faults) *uint8 { return &f.Failovers }, func(n *State) {
				n.Blind = !n.Left.Renewals && n.Servers[1].missesRenewals(&n.Servers[0])
				n.Servers[0], n.Lost = n.Servers[1], true
				n.orphanReplies()
			})
		}
		if x.Acked {
			x.replicate()
		}
		x.fault(splits, 0, func(f *Faults) *uint8 { return &f.Splits }, func(n *State) { n.Split = true })
	}
	if back := x.from.Left.StepBack; x.from.Now-x.from.Back >= back {
		x.fault(stepsBack, 0, func(f *Faults) *uint8 { return &f.StepsBack }, func(n *State) { n.Back += back })
	}
}

// missesRenewals returns whether a lease ends earlier in the saved state than in the present one.
func (s *Server) missesRenewals(now *Server) bool {
	for i, r := range s.Rows {
		if r.ID != 0 && r.ID == now.Rows[i].ID && r.Expiry < now.Rows[i].Expiry {
			return true
		}
	}
	return false
}

// replicate lets the follower catch up, which acknowledges everything that was executed before.
func (s *State) replicate() {
	s.Servers[1] = s.Servers[0]
	for i := range s.Net {
		if m := &s.Net[i]; m.Kind != 0 && m.Phase == answered && m.To == 0 {
			m.Acked = true
		}
	}
}

// orphanReplies marks replies that can no longer be acknowledged: their master is gone.
func (s *State) orphanReplies() {
	for i := range s.Net {
		if m := &s.Net[i]; m.Kind != 0 && m.Phase == answered {
			m.To = 1
		}
	}
}

func (x *steps) replicate() {
	n := *x.from
	if n.replicate(); n != *x.from {
		x.done(replicates, 0, 0, &n)
	}
}

// replica emits the faults of a replica.
func (x *steps) replica(r int) {
	switch p := &x.from.Replicas[r]; p.Mode {
	case up:
		x.fault(freezes, r, func(f *Faults) *uint8 { return &f.Freezes }, func(n *State) { n.Replicas[r].Mode = frozen })
		x.fault(sleeps, r, func(f *Faults) *uint8 { return &f.Suspends }, func(n *State) {
			n.Replicas[r].Mode, n.Replicas[r].Slept = asleep, n.Now
		})
		x.fault(isKilled, r, func(f *Faults) *uint8 { return &f.Deaths }, func(n *State) { x.kill(n, r) })
	case frozen:
		n := *x.from
		n.Replicas[r].Mode = up
		x.expire(&n)
		x.done(thaws, r, 0, &n)
	case asleep:
		n := *x.from
		x.wake(&n, r)
		x.done(wakes, r, 0, &n)
	case dead:
	}
}

// wake resumes a machine. A clock that stood still has seen nothing of the time that it slept.
func (x *steps) wake(n *State, r int) {
	p := &n.Replicas[r]
	slept := n.Now - p.Slept
	p.Mode, p.Slept = up, 0
	if !x.DeadlineInSuspend {
		p.Lag += slept
		for w := range p.Work {
			if p.Work[w].Phase == running {
				p.Work[w].Deadline += slept
			}
		}
		for i := range n.Net {
			if m := &n.Net[i]; m.Kind != 0 && m.ID.owner() == r {
				m.Sent += slept
			}
		}
	}
	x.expire(n)
}

// kill ends a replica. Its requests stay in the network.
func (x *steps) kill(n *State, r int) {
	p := &n.Replicas[r]
	*p = Replica{Mode: dead, Work: p.Work}
	for w := range p.Work {
		alive := p.Work[w].Alive && !x.Warden
		p.Work[w] = Work{Phase: over, Generation: p.Work[w].Generation, Alive: alive}
	}
	for i := range n.Net {
		switch m := &n.Net[i]; {
		case m.Kind == 0 || m.ID.owner() != r:
		case m.Phase == answered:
			*m = Message{}
		default:
			m.Phase = stray
		}
	}
	x.drop(n)
}
