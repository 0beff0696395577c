package model

// steps finds every state that may come next.
type steps struct {
	*Setup
	*Rules
	from *State
	emit func(Step, *State)
}

// Step is one line of a schedule: an event, and the replica, work or message that it concerns.
type Step struct {
	Act     Act
	Replica uint8
	Work    uint8
	Net     uint8 // the message
}

// Act is a kind of step.
type Act uint8

const (
	asks Act = iota
	givesUp
	renews
	ends
	dies // the processes of a run that was told to end
	givesBackRun
	leavesRun
	releases
	decidesAlone
	arrives
	isAnswered
	timePasses
	timePassesWithStray
	breaks
	forgets
	saves
	failsOver
	splits
	replicates
	stepsBack
	freezes
	thaws
	sleeps
	wakes
	isKilled
	adopts
	isPaused
	isResumed
	abandons
)

// all emits every state that may come next.
func (x *steps) all() {
	for r := range x.Replicas {
		if x.from.Replicas[r].Mode == up {
			for w := range 1 + x.Ticks {
				x.work(r, w)
			}
		}
	}
	for i := range x.from.Net {
		x.message(i)
	}
	x.pass()
	x.faults()
}

// work emits the steps of a replica with one piece of work.
func (x *steps) work(r, w int) {
	switch k := &x.from.Replicas[r].Work[w]; k.Phase {
	case quiet:
		x.ask(r, w)
		x.giveUp(r, w)
	case running:
		x.hold(r, w)
	case ending, returning, withdrawn:
		x.release(r, w)
		if k.Alive {
			n := *x.from
			n.Replicas[r].Work[w].Alive = false
			x.done(dies, r, w, &n)
		}
	case over:
		x.adopt(r, w)
	case leaving:
	}
	x.abandon(r, w)
}

func (x *steps) done(act Act, r, w int, n *State) {
	x.emit(Step{Act: act, Replica: uint8(r), Work: uint8(w)}, n)
}

// awaits returns whether the reply to a message of this kind is waited for.
func (s *State) awaits(kind Kind, r, w int) bool {
	for i := range s.Net {
		m := &s.Net[i]
		if m.Kind == kind && m.Phase != stray && m.ID.owner() == r && m.ID.work() == w {
			return true
		}
	}
	return false
}

// claiming returns whether a replica's claims are under way. Claims that come due meanwhile go in the next batch;
// recoveries have batches of their own.
func (s *State) claiming(r int, adoptions bool) bool {
	for i := range s.Net {
		m := &s.Net[i]
		if m.Kind == claim && m.Phase != stray && m.ID.owner() == r && (m.Adopt != 0) == adoptions {
			return true
		}
	}
	return false
}

// send puts a request for a piece of work on the network. Where there are two masters the replica may reach either.
func (x *steps) send(act Act, m Message, r, w int, change func(n *State)) {
	for to := range uint8(masters) {
		if to > 0 && !x.from.Split {
			break
		}
		n := *x.from
		change(&n)
		p := &n.Replicas[r]
		q := m
		q.ID, q.To, q.Sent = newID(r, w, int(p.Work[w].Generation)), to, n.Now
		q.Until = n.Now - p.Lag + x.Timeout
		q.Knows = p.Knows
		if !x.ObservedState {
			q.Knows = Knowledge{Told: p.Knows.Told}
		}
		if n.post(q, x.InFlight) {
			x.done(act, r, w, &n)
		}
	}
}

// post finds room for a message, of which there are at most so many at once.
func (s *State) post(m Message, most int) bool {
	for i := range most {
		if s.Net[i].Kind == 0 {
			s.Net[i] = m
			return true
		}
	}
	return false
}

// ask claims a tick. Each claim asks under the same id, unless that was given back.
func (x *steps) ask(r, w int) {
	k := &x.from.Replicas[r].Work[w]
	recovery := k.Adopts != 0
	if w == 0 && !x.Manual || x.from.Now+x.Early < x.At[w] || k.Rests || x.from.claiming(r, recovery) {
		return
	}
	if w > 0 && !recovery && !x.SettledInScript && x.from.Now >= x.At[w]+x.StartWithin {
		n := *x.from
		n.Replicas[r].Work[w].Phase = over
		n.True.Outcomes[w] |= 1 << missed
		x.done(decidesAlone, r, w, &n)
	}
	m := Message{Kind: claim, Waited: k.Waited, Skip: !k.Waited || !x.WaitingNeverSkips, First: x.Queue, Adopt: k.Adopts}
	if recovery {
		m.Waited, m.Skip, m.First = false, false, false
	}
	x.send(asks, m, r, w, func(n *State) {
		if k := &n.Replicas[r].Work[w]; k.Asked && !x.SameID && w > 0 {
			k.Generation, k.Asked = 1, false
		}
	})
}

// giveUp closes a tick that may be undecided.
func (x *steps) giveUp(r, w int) {
	k, asking := &x.from.Replicas[r].Work[w], x.from.awaits(claim, r, w)
	if x.from.Left.GiveUps == 0 || !asking && !k.Asked {
		return
	}
	change := func(n *State) {
		n.Left.GiveUps--
		k := &n.Replicas[r].Work[w]
		switch {
		case asking:
			k.Phase = leaving // the answer decides the next step
		case x.WithdrawGivenUp:
			k.Phase = withdrawn
		default:
			k.Phase = over
		}
	}
	if asking && k.Asked && !x.WithdrawUnasked {
		x.send(givesUp, Message{Kind: release, Undo: true}, r, w, change)
		return
	}
	n := *x.from
	change(&n)
	x.done(givesUp, r, w, &n)
}

// hold emits the steps of the holder of a lease.
func (x *steps) hold(r, w int) {
	k := &x.from.Replicas[r].Work[w]
	if !x.from.awaits(renewal, r, w) && x.from.Now+x.Lease > k.Deadline {
		x.send(renews, Message{Kind: renewal, Slot: k.Slot, Token: k.Token, Adopt: k.Adopts, Attempt: k.Attempt}, r, w, func(*State) {})
	}
	end := func(alive, leaves bool) func(*State) {
		return func(n *State) {
			k := &n.Replicas[r].Work[w]
			*k = Work{Phase: ending, Generation: k.Generation, Alive: alive, Leaves: leaves}
			if x.Recover > 0 && !leaves {
				n.True.Tries[w] |= wellEnded
			}
		}
	}
	x.send(ends, Message{Kind: release}, r, w, end(!x.ReleaseAfterDead, false))
	if x.Leaves && (x.Recover == 0 || x.allows(k.Attempt)) {
		x.send(leavesRun, Message{Kind: release, Leave: true}, r, w, end(!x.ReleaseAfterDead, true))
	}
	if !x.GiveBackOnlyUnrun {
		x.send(givesBackRun, Message{Kind: release, Undo: true}, r, w, end(false, false))
	}
}

// release sends the release of a lease until it is answered.
func (x *steps) release(r, w int) {
	if !x.from.awaits(release, r, w) {
		k := &x.from.Replicas[r].Work[w]
		x.send(releases, Message{Kind: release, Undo: k.Phase != ending, Leave: k.Leaves}, r, w, func(*State) {})
	}
}

// take makes a replica handle the reply in a message, and removes the message.
func (x *steps) take(n *State, i int) {
	m := n.Net[i]
	n.Net[i] = Message{}
	r, w := m.ID.owner(), m.ID.work()
	p := &n.Replicas[r]
	p.Lag = m.Lag
	unheard := x.Acked && x.AcknowledgedState && !m.Acked
	if m.Verdict != isLate && m.Verdict != isDead && !unheard {
		var ok bool
		if p.Knows, ok = p.Knows.with(m.Knows, x.OutOfTurnIsCarried); !ok {
			n.Blind = true // beyond the model's bounds
		}
	}
	k := &p.Work[w]
	if m.ID.generation() != int(k.Generation) {
		return
	}
	switch m.Kind {
	case claim:
		x.claimed(n, k, &m)
	case renewal:
		x.renewed(n, k, &m)
	case release:
		if k.Phase == returning && x.Acked && !m.Acked && x.AcknowledgedWithdrawal { // it is withdrawn once more
			break
		}
		x.released(k)
	}
	if k.Adopts != 0 {
		k.Waited = false // it is not tied to a deadline, and never skipped
	}
}

// deadline returns the end of the time in which the holder may rely on a lease with this much left.
func (x *steps) deadline(n *State, m *Message) uint8 {
	if !x.DeadlineFromSend {
		return n.Now + min(m.Left, x.Lease)
	}
	return m.Sent + min(m.Left, x.Lease)
}

func (x *steps) claimed(n *State, k *Work, m *Message) {
	if k.Phase != quiet && k.Phase != leaving {
		return
	}
	unheard := x.Acked && !m.Acked
	switch m.Verdict {
	case isGranted:
		if n.Now >= x.deadline(n, m) || unheard && x.AcknowledgedGrants {
			x.unanswered(k)
			return
		}
		x.start(n, k, m)
	case isSettled, isDecided:
		if unheard && x.AcknowledgedRefusal {
			x.unanswered(k)
			return
		}
		if m.Verdict == isSettled {
			n.True.Outcomes[m.ID.work()] |= 1 << m.How
		}
		if k.Asked && m.Verdict == isDecided && x.WithdrawDecided {
			k.Phase = withdrawn
			return
		}
		*k = x.over(k)
	case isLate:
		if k.Phase == leaving {
			x.unanswered(k)
		}
	case isUnheard:
		x.withdrawUnheard(n, k)
	case isHeld, isEarly, isClosed:
		x.stillOpen(k, m)
	default:
		*k = x.over(k)
	}
}

// withdrawUnheard takes back, for good, a claim of which the replica hears only after the lease.
func (x *steps) withdrawUnheard(n *State, k *Work) {
	switch {
	case k.Phase == leaving:
		k.Phase = withdrawn
	case x.WithdrawnIDIsDead && int(k.Generation)+1 == generations:
		n.Blind = true // beyond the model's bounds: there is no other id
	default:
		k.Phase = returning
	}
}

// stillOpen handles a tick that is undecided. A replica that leaves drops it, unless a claim was never answered: that
// one may still arrive.
func (x *steps) stillOpen(k *Work, m *Message) {
	switch {
	case k.Phase == leaving && k.Asked && x.WithdrawDoubted:
		k.Phase = withdrawn
	case k.Phase == leaving:
		*k = x.over(k)
	default:
		k.Asked, k.Rests = k.Asked && x.WithdrawDoubted, true
		k.Waited = k.Waited || m.Verdict == isClosed || x.Queue && m.Verdict == isHeld
	}
}

// unanswered handles a claim whose outcome is unknown.
func (x *steps) unanswered(k *Work) {
	k.Asked, k.Waited = true, true
	if k.Phase == leaving {
		k.Phase = over
		if x.WithdrawGivenUp {
			k.Phase = withdrawn
		}
	}
}

// start starts a granted run, unless the reply shows that it is too late to start.
func (x *steps) start(n *State, k *Work, m *Message) {
	w, lag := m.ID.work(), n.Replicas[m.ID.owner()].Lag
	if k.Adopts != 0 && k.Phase == leaving { // it waits for another recovery
		k.Phase = withdrawn
		return
	}
	if w > 0 && k.Adopts == 0 && k.Waited && k.Phase == quiet && n.Now-lag > x.At[w]+x.StartWithin {
		k.Phase = returning
		return
	}
	*k = Work{Phase: running, Generation: k.Generation, Alive: true, Adopts: k.Adopts, Attempt: m.Attempt, Slot: m.Slot, Token: m.Token,
		Deadline: x.deadline(n, m)}
	n.True.Started |= setOf(m.ID)
	x.tried(n, m)
	if w == 0 || k.Adopts != 0 {
		return
	}
	n.True.Runs[w]++
	if n.True.Slots[w]>>m.Slot&1 == 1 {
		n.Broken = brokenSlot
	}
	n.True.Slots[w] |= 1 << m.Slot
	if int(n.True.Runs[w]) > x.PerTick {
		n.Broken = brokenOnce
	}
}

func (x *steps) renewed(n *State, k *Work, m *Message) {
	counts := m.Acked || !x.Acked || !x.AcknowledgedRenewals // else a failover may undo it, or has done so already
	switch {
	case k.Phase != running || n.Now >= k.Deadline || !counts:
	case m.Verdict == isLost:
		*k = x.interrupted(k)
	case m.Verdict == isRenewed:
		k.Deadline = max(k.Deadline, x.deadline(n, m))
	}
}

func (x *steps) released(k *Work) {
	switch {
	case k.Phase == returning && !x.WithdrawnIDIsDead:
		*k = Work{Generation: k.Generation, Waited: true}
	case k.Phase == returning && k.Generation+1 < generations: // asked for again: it may start yet, or the server settles it
		*k = Work{Generation: k.Generation + 1, Waited: true}
	case k.Phase == leaving || k.Phase == running: // withdrawn while it was asked for
	default:
		alive := k.Alive
		*k = x.over(k)
		k.Alive = alive
	}
}
