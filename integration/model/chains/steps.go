package chains

import "fmt"

// add takes a state that may come next, and what led to it.
type add func(to state, format string, args ...any)

// steps are all that can happen next.
func (x *search) steps(s state) (all []successor) {
	emit := func(to state, format string, args ...any) {
		x.judge(&to)
		all = append(all, successor{to, func() string { return fmt.Sprintf(format, args...) }})
	}
	for r := uint8(1); r <= replicas; r++ {
		if s.replicas[r].gone {
			continue
		}
		x.look(s, r, emit)
		for t := uint8(1); t <= x.setup.Ticks; t++ {
			x.claim(s, r, t, emit)
			for p := range x.setup.Parents {
				x.begin(s, p, r, t, emit)
			}
		}
		x.leave(s, r, emit)
	}
	for t := uint8(1); t <= x.setup.Ticks; t++ {
		for p := range x.setup.Parents {
			x.end(s, p, t, emit)
		}
		x.run(s, t, emit)
	}
	return all
}

// spend takes one of those that may still happen.
func spend(left *uint8) bool {
	if *left == 0 {
		return false
	}
	*left--
	return true
}

// begin lets a replica take a tick of a parent, or an orphan.
func (x *search) begin(s state, p int, r, t uint8, emit add) {
	l := &s.parents[p]
	to := s
	next := &to.parents[p]
	switch {
	case l.orphan[t] != 0 && x.setup.Recover:
		next.orphan[t], next.row[t] = 0, r
		emit(to, "%s carries on parent %d's %s", name(r), p+1, tickName(t))
	case l.orphan[t] != 0:
		next.orphan[t] = 0
		emit(to, "%s buries parent %d's %s", name(r), p+1, tickName(t))
	case !l.decided(t) && l.row[t] == 0:
		next.decide(t, t-1)
		next.row[t] = r
		emit(to, "%s is granted parent %d's %s", name(r), p+1, tickName(t))
		if spend(&to.left.Failures) {
			next.row[t] = 0
			emit(to, "%s settles parent %d's %s", name(r), p+1, tickName(t))
		}
	}
}

// end emits the possible ends of a parent's run.
func (x *search) end(s state, p int, t uint8, emit add) {
	r := s.parents[p].row[t]
	if owed := s.parents[p].owed[t]; owed != 0 {
		to := s
		l := &to.parents[p]
		l.owed[t] = 0
		l.conclude(&x.setup.Rules, t, well)
		emit(to, "%s writes how parent %d's %s ended", name(owed), p+1, tickName(t))
	}
	if r == 0 {
		return
	}
	to := s
	l := &to.parents[p]
	l.row[t] = 0
	if s.replicas[r].gone {
		l.orphan[t], l.real[t], l.words[t] = r, bad, bad
		emit(to, "the lease of %s's run of parent %d's %s has ended: it is an orphan", name(r), p+1, tickName(t))
		return
	}
	ended := to
	l = &ended.parents[p]
	l.real[t] = well
	if x.setup.Rules.Atomic {
		l.conclude(&x.setup.Rules, t, well)
	} else {
		l.owed[t] = r
	}
	emit(ended, "%s's run of parent %d's %s ends well", name(r), p+1, tickName(t))
	if failed := to; spend(&failed.left.Failures) {
		l = &failed.parents[p]
		l.real[t] = bad
		l.conclude(&x.setup.Rules, t, bad)
		emit(failed, "%s's run of parent %d's %s fails", name(r), p+1, tickName(t))
	}
	if back := to; spend(&back.left.GiveBacks) {
		back.parents[p].open |= 1 << t
		emit(back, "%s gives parent %d's %s back", name(r), p+1, tickName(t))
	}
}

// look inspects one lock after the other, and opens the due ticks when all have answered.
func (x *search) look(s state, r uint8, emit add) {
	looked := s.replicas[r].seen.looked
	if !has(looked, 0) {
		to := s
		v := &to.replicas[r].seen
		v.looked |= 1
		v.low, v.open = s.child.low, s.child.open
		for t := uint8(1); t <= x.setup.Ticks; t++ {
			if s.child.row[t] != 0 {
				v.running |= 1 << t
			}
			if s.child.orphan[t] != 0 {
				v.orphans |= 1 << t
			}
		}
		x.open(&to, r)
		emit(to, "%s looks at the child", name(r))
	}
	for p := range x.setup.Parents {
		if has(looked, uint8(p+1)) {
			continue
		}
		to := s
		v := &to.replicas[r].seen
		v.looked |= 1 << (p + 1)
		v.through[p], v.ended[p] = x.follow(&to.parents[p], s.replicas[r].used)
		x.open(&to, r)
		emit(to, "%s looks at parent %d, and has used what is up to T%d", name(r), p+1, s.replicas[r].used)
	}
}

// follow is the answer of a parent to its follower: lua/chain.lua.
func (x *search) follow(p *parent, used uint8) (through, ended uint8) {
	if used > 0 {
		p.used = used
	}
	p.comeDue(&x.setup.Rules)
	for t := uint8(1); t <= ticks; t++ {
		if t <= p.used {
			p.words[t] = none
		}
		if p.words[t] == due {
			ended |= 1 << t
			if !x.setup.Rules.KeptUntilUsed {
				p.words[t] = none
			}
		}
	}
	return p.through(&x.setup.Rules), ended
}

// open is scheduler.openChained, once all looks are answered.
func (x *search) open(s *state, r uint8) {
	c, rules := &s.replicas[r], &x.setup.Rules
	v := c.seen
	if int(v.looked) != 1<<(x.setup.Parents+1)-1 {
		return
	}
	used, common := v.through[0], v.ended[0]
	for p := 1; p < x.setup.Parents; p++ {
		used = min(used, v.through[p])
		if rules.AllParents {
			common &= v.ended[p]
		} else {
			common |= v.ended[p]
		}
	}
	used = max(used, v.low)
	previous := v.low
	for t := uint8(1); t <= x.setup.Ticks; t++ {
		again := has(v.open, t)
		switch {
		case !has(common, t):
			continue
		case !again && t <= v.low:
			continue
		case rules.UndecidedKept:
			used = min(used, t-1)
		}
		if !has(c.claims, t) && (again || t > c.opened) {
			c.claims |= 1 << t
			c.prev[t] = min(previous, t-1)
			c.opened = max(c.opened, t)
		}
		if rules.PreviousNamed {
			previous = t
		}
	}
	for t := uint8(1); t <= x.setup.Ticks; t++ {
		if has(v.open|v.running|v.orphans, t) && rules.PendingKept {
			used = min(used, t-1)
		}
	}
	c.used, c.seen = used, view{}
}

// claim asks the child's lock for an open tick.
func (x *search) claim(s state, r, t uint8, emit add) {
	c := &s.replicas[r]
	if !has(c.claims, t) {
		return
	}
	to := s
	l, n := &to.child, &to.replicas[r]
	if l.orphan[t] == r && has(c.doubted, t) { // its own orphan: the reply to its claim was lost
		l.orphan[t] = 0
		l.open |= 1 << t
	}
	switch {
	case l.row[t] == r && has(c.doubted, t): // the same request again
	case l.decided(t):
		n.claims &^= 1 << t
		n.doubted &^= 1 << t
		emit(to, "%s claims the child's %s: decided already", name(r), tickName(t))
		return
	default:
		l.decide(t, c.prev[t])
		l.row[t] = r
		if !x.called(&s, t) {
			to.broken = uncalled
		}
	}
	if unheard := to; spend(&unheard.left.Lost) {
		unheard.replicas[r].doubted |= 1 << t
		emit(unheard, "%s claims the child's %s: granted, and the reply is lost", name(r), tickName(t))
	}
	n.doubted &^= 1 << t
	if back := to; spend(&back.left.GiveBacks) {
		back.child.row[t] = 0
		back.child.open |= 1 << t
		emit(back, "%s is granted the child's %s, and gives it back", name(r), tickName(t))
	}
	n.claims &^= 1 << t
	if to.runs[t]++; to.runs[t] > 1 {
		to.broken = twice
	}
	emit(to, "%s claims the child's %s: granted", name(r), tickName(t))
}

// run emits the possible changes of a child's row or of its orphan.
func (x *search) run(s state, t uint8, emit add) {
	if r := s.child.row[t]; r != 0 {
		c := &s.replicas[r]
		to := s
		to.child.row[t] = 0
		unheard := has(c.doubted, t) && !c.gone
		switch {
		case unheard && !spend(&to.left.Expiries):
		case unheard || c.gone:
			to.child.orphan[t] = r
			emit(to, "the lease of %s's run of the child's %s has ended: it is an orphan", name(r), tickName(t))
		default:
			emit(to, "%s's run of the child's %s ends", name(r), tickName(t))
		}
	}
	if s.child.orphan[t] != 0 && !(s.replicas[1].gone && s.replicas[2].gone) {
		to := s
		to.child.orphan[t] = 0
		to.told |= 1 << t
		emit(to, "the child's orphan of %s is recorded, and buried", tickName(t))
	}
}

// leave ends a replica: it dies, or it drains and gives back the grants that it may have.
func (x *search) leave(s state, r uint8, emit add) {
	gone := replica{gone: true}
	if to := s; spend(&to.left.Deaths) {
		to.replicas[r] = gone
		for p := range to.parents {
			for t := range to.parents[p].owed {
				if to.parents[p].owed[t] == r {
					to.parents[p].owed[t] = 0
				}
			}
		}
		emit(to, "%s dies", name(r))
	}
	to := s
	if !spend(&to.left.Drains) {
		return
	}
	l := &to.child
	for t := uint8(1); t <= x.setup.Ticks; t++ {
		if has(s.replicas[r].doubted, t) && (l.row[t] == r || l.orphan[t] == r) {
			l.row[t], l.orphan[t] = 0, 0
			l.open |= 1 << t
		}
	}
	to.replicas[r] = gone
	emit(to, "%s drains, and withdraws what was not answered", name(r))
}
