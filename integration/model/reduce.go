package model

// reduce forgets facts that can make no difference any more, so that fewer states differ. No step that may still come
// reads them.
func (x *steps) reduce(n *State) {
	forgetful := n.Lost || n.Split || n.Left.Flushes+n.Left.Failovers+n.Left.Splits > 0
	if !forgetful {
		n.dropKnowledge(x.LaterStatementCounts && x.EndIsKept)
		n.Servers[1] = Server{}
	}
	if n.Left.Failovers+n.Left.Splits == 0 && !n.Split {
		n.Servers[1] = Server{}
	}
	for tick := 1; tick <= x.Ticks; tick++ {
		if !forgetful && (n.True.Runs[tick] > 0 || n.True.Outcomes[tick]&^(1<<abandoned) > 0) {
			n.True.Issued &^= idsFor[tick]
			n.True.Undone &^= idsFor[tick]
			n.True.Settled &^= idsFor[tick]
		}
	}
	if x.PerTick == 1 {
		n.True.Slots = [works]uint8{}
	}
	x.dropIDs(n)
}

// dropKnowledge drops the observations of replicas: a server that never forgets does not need them. With pause it drops
// only those of the pause.
func (s *State) dropKnowledge(pause bool) {
	drop := func(k *Knowledge) {
		was := k.Pause
		if *k = (Knowledge{}); !pause {
			k.Pause = was
		}
	}
	for i := range s.Net {
		drop(&s.Net[i].Knows)
	}
	for r := range s.Replicas {
		drop(&s.Replicas[r].Knows)
	}
	s.Servers[0].Told = 0
}

// dropIDs drops the records of ids in whose name no message can arrive any more.
func (x *steps) dropIDs(n *State) {
	var alive IDs
	for i := range n.Net {
		alive |= setOf(n.Net[i].ID)
	}
	for r := range n.Replicas {
		for w, k := range n.Replicas[r].Work {
			if k.Phase == over {
				continue
			}
			for g := int(k.Generation); g < generations && (g == 0 || w > 0); g++ {
				alive |= setOf(newID(r, w, g))
			}
		}
	}
	for i := range n.Servers {
		s := &n.Servers[i]
		s.Released &= alive
		for o := range s.Orphans {
			if x.Recover == 0 { // else a recovery may come
				s.Orphans[o] &= alive
			}
		}
		s.Abandoned &= s.Orphans[0] | s.Orphans[1]
		for o := range s.Beyond {
			s.Beyond[o] &= s.Orphans[0] | s.Orphans[1]
		}
		for id := range s.Tombs {
			expired := s.Tombs[id]&^gone <= n.Now-n.Back && n.Left.StepsBack == 0
			if expired || !alive.has(ID(id)) {
				s.Tombs[id] = 0
			}
		}
	}
}
