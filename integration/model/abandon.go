package model

import "math/bits"

// abandon has a replica record the orphans of a tick that no recovery may carry on: from then on the tick stays decided. It does so in one step on the
// server, and only where that lasts: on the master, and with acked_replicas on its follower, too.
func (x *steps) abandon(r, w int) {
	if !x.Abandons || w == 0 || x.from.Lost || x.from.Split {
		return
	}
	n := *x.from
	s := &n.Servers[0]
	m := machine{Setup: x.Setup, Rules: x.Rules, s: s, now: n.Now - n.Back}
	m.purge()
	for all := (s.Orphans[0] | s.Orphans[1]) & idsFor[w] &^ s.Abandoned; all != 0; all &= all - 1 {
		id := ID(bits.TrailingZeros16(uint16(all)))
		late := n.Now-n.Back > x.At[w]+x.StartWithin
		if id.owner() == r || x.Recover > 0 && x.allows(s.attempt(id)) || x.AbandonLate && !late && n.Replicas[id.owner()].Mode == up {
			continue
		}
		after := n
		after.Servers[0].Abandoned |= setOf(id)
		if x.Acked {
			after.replicate()
		}
		if !n.True.Started.has(id) {
			after.True.Outcomes[w] |= 1 << abandoned
		}
		x.done(abandons, r, w, &after)
	}
}
