package model

import "math/bits"

// judge holds a state against the promises that can be read from it alone.
func (x *steps) judge(n *State) {
	if n.Broken != 0 || n.Blind {
		return
	}
	if bits.OnesCount16(uint16(n.alive())) > x.Slots {
		n.Broken = brokenExclusive
	}
	for tick := 1; tick <= x.Ticks; tick++ {
		outcomes := n.True.Outcomes[tick]
		if n.True.Runs[tick] > 0 || n.True.Tries[tick] != 0 {
			outcomes |= 1 << granted
		}
		unrecorded := outcomes == 0 || outcomes == 1<<abandoned && !x.AbandonLate // else the claimant was not up, or it was too late
		if bits.OnesCount8(outcomes) > 1 {
			n.Broken = brokenDecider
		}
		if unrecorded && n.True.Settled&idsFor[tick] == 0 && x.wasted(n, tick) {
			n.Broken = brokenLost
		}
		if x.unrecovered(n, tick) {
			n.Broken = brokenRecovery
		}
	}
}

// wasted returns whether a tick that might still start counts as decided although no replica has run it, has settled
// it, or will. A replica that died before the start, or stands still, is not at fault: a dead holder's lease counts
// as held. Neither is a server that has forgotten a grant or its return: in doubt a tick is decided.
func (x *steps) wasted(n *State, tick int) bool {
	master := &n.Servers[0]
	if n.Split {
		master = &n.Servers[1]
	}
	if !master.decided(tick, x.At[tick]) || n.Now-n.Back > x.At[tick]+x.StartWithin {
		return false
	}
	if n.Lost && n.True.Issued&idsFor[tick] != 0 {
		return false
	}
	if x.Recover > 0 && master.keeps(tick) { // for a recovery
		return false
	}
	for r := range x.Replicas {
		p := &n.Replicas[r]
		for g := range generations {
			id := newID(r, tick, g)
			k := &p.Work[tick]
			if !n.True.Issued.has(id) || n.True.Undone.has(id) && k.Phase != returning { // else its withdrawal may have to be repeated
				continue
			}
			if p.Mode != up || int(k.Generation) == g && k.Phase != over {
				return false
			}
		}
	}
	return true
}
