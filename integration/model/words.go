package model

import "fmt"

// describe returns a step in words: the event that led from x.from to n.
func (x *steps) describe(s Step, n *State) string {
	who, what := name(int(s.Replica)), workName(int(s.Work))
	f := x.from
	switch s.Act {
	case asks:
		return fmt.Sprintf("%s claims %s%s", who, what, x.posted(n))
	case givesUp:
		return fmt.Sprintf("%s gives %s up%s", who, what, x.posted(n))
	case renews:
		return fmt.Sprintf("%s renews its lease of %s%s", who, what, x.posted(n))
	case ends:
		if n.Replicas[s.Replica].Work[s.Work].Alive {
			return fmt.Sprintf("%s asks its run of %s to end, and releases", who, what)
		}
		return fmt.Sprintf("%s's run of %s ends, and %s releases", who, what, who)
	case dies:
		return fmt.Sprintf("the processes of %s's run of %s are dead", who, what)
	case adopts:
		o := n.Replicas[s.Replica].Work[s.Work].Adopts
		return fmt.Sprintf("%s sees that %s's run of %s is an orphan, and claims it%s", who, name(o.owner()), what, x.posted(n))
	case leavesRun:
		return fmt.Sprintf("%s stops its run of %s, and leaves it to a recovery", who, what)
	case givesBackRun:
		return fmt.Sprintf("%s ends its run of %s, and gives the tick back", who, what)
	case releases:
		return fmt.Sprintf("%s sends the release of %s", who, what)
	case decidesAlone:
		return fmt.Sprintf("%s finds %s too late by its own clock, and records it as missed", who, what)
	case arrives:
		return x.tellArrival(s, n)
	case abandons:
		return fmt.Sprintf("%s sees that a run of %s is an orphan, and records it as abandoned", who, what)
	case isAnswered:
		m := &f.Net[s.Net]
		r, w := m.ID.owner(), m.ID.work()
		return fmt.Sprintf("the reply reaches %s: %s (%s)", name(r), verdictText(m), phaseText(&n.Replicas[r].Work[w], workName(w)))
	case timePasses, timePassesWithStray:
		return x.tellTime(s, n)
	case breaks:
		m := &f.Net[s.Net]
		return fmt.Sprintf("the connection with %s's %s %s breaks; the request is still under way", name(m.ID.owner()), kindTexts[m.Kind], workName(m.ID.work()))
	case isPaused, isResumed:
		if n.Replicas != f.Replicas {
			return actTexts[s.Act] + ", and all replicas that are up hear of it"
		}
	case stepsBack:
		return fmt.Sprintf("the server's clock is set back to %d", n.Now-n.Back)
	case freezes, thaws, sleeps, wakes, isKilled:
		return who + " " + modeTexts[s.Act]
	}
	return actTexts[s.Act]
}

var actTexts = map[Act]string{
	forgets:    "the server forgets everything",
	saves:      "the follower takes over the server's state",
	failsOver:  "the server fails, and the follower takes its place with what it has",
	splits:     "the server is cut off with the clients that reach it, and the follower is made master",
	isPaused:   "a command pauses the lock",
	isResumed:  "a command ends the pause",
	replicates: "the follower takes over the server's state, and acknowledges",
}

var modeTexts = map[Act]string{
	freezes:  "freezes; its jobs run on",
	thaws:    "thaws",
	sleeps:   "is suspended with its whole machine",
	wakes:    "wakes up",
	isKilled: "is killed",
}

var kindTexts = [...]string{claim: "claim of", renewal: "renewal of", release: "release of"}

func name(r int) string { return string(rune('A' + r)) }

func workName(w int) string {
	if w == 0 {
		return "a manual run"
	}
	return fmt.Sprintf("T%d", w)
}

// posted returns the special properties of the request that was sent.
func (x *steps) posted(n *State) string {
	for i := range n.Net {
		m := &n.Net[i]
		if m.Kind == 0 || *m == x.from.Net[i] {
			continue
		}
		text := ""
		if m.Kind == claim && m.ID.generation() > 0 {
			text += " under a new id"
		}
		if m.Kind == release && m.Undo {
			text += ", and withdraws its claim"
		}
		if m.To == 1 {
			text += " (on the new master)"
		} else if n.Split {
			text += " (on the old master)"
		}
		return text
	}
	return ""
}

func (x *steps) tellArrival(s Step, n *State) string {
	before, m := &x.from.Net[s.Net], n.Net[s.Net]
	late := ""
	if before.Phase == stray {
		late = " at last"
		m = *before
		server := x.from.Servers[m.To]
		c := machine{Setup: x.Setup, Rules: x.Rules, s: &server, q: &m, now: n.Now - n.Back}
		c.execute()
	}
	return fmt.Sprintf("%s's %s %s arrives%s: %s", name(m.ID.owner()), kindTexts[before.Kind], workName(m.ID.work()), late, verdictText(&m))
}

func (x *steps) tellTime(s Step, n *State) string {
	text := fmt.Sprintf("time passes: it is %d", n.Now)
	if n.Back > 0 {
		text += fmt.Sprintf(", and %d by the server's clock", n.Now-n.Back)
	}
	for i := range x.from.Net {
		m := &x.from.Net[i]
		if !x.overdue(n, i) {
			continue
		}
		text += fmt.Sprintf("; %s waits no longer for the reply about %s", name(m.ID.owner()), workName(m.ID.work()))
		switch {
		case s.Act == timePassesWithStray && i == int(s.Net):
			text += ", the request is still under way"
		case m.Phase == answered:
			text += ", which is lost"
		default:
			text += ", the request is lost"
		}
	}
	for r := range n.Replicas {
		for w := range n.Replicas[r].Work {
			if was, is := x.from.Replicas[r].Work[w], n.Replicas[r].Work[w]; was.Alive && !is.Alive {
				text += fmt.Sprintf("; the deadline of %s's %s has passed, its processes are killed", name(r), workName(w))
			}
		}
	}
	return text
}

func verdictText(m *Message) string {
	how := [...]string{noOutcome: "", granted: ", granted", skipped: ", skipped", missed: ", missed", paused: ", paused", abandoned: ", abandoned", adopted: ": the orphan is not available"}[m.How]
	switch m.Verdict {
	case isGranted:
		return fmt.Sprintf("granted, slot %d, token %d, attempt %d", m.Slot, m.Token, m.Attempt)
	case isSettled:
		return "settled" + how
	case isDecided:
		return "decided already" + how
	case isRenewed:
		return fmt.Sprintf("renewed, slot %d", m.Slot)
	}
	return [...]string{isLate: "too late", isDead: "its id is dead", isEarly: "early", isClosed: "closed", isHeld: "all slots are held",
		isLost: "lost", isReleased: "released", isGone: "it is gone already",
		isUnheard: "granted once, and the lease has ended"}[m.Verdict]
}

func phaseText(k *Work, what string) string {
	switch k.Phase {
	case quiet:
		return what + " is still open there"
	case running:
		return fmt.Sprintf("it runs %s, and relies on its lease until %d", what, k.Deadline)
	case ending:
		return "its run is over, the release is to be sent"
	case returning:
		return "too late to start, it is given back"
	case leaving, withdrawn:
		return "it has given it up"
	}
	return "it is done with " + what
}
