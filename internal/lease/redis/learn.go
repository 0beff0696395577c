package redis

import "github.com/cronclave/cronclave/internal/lease/observed"

// learnReply records the lock's state from a reply, unless a failover may undo that state. Otherwise this client could send the new master a grant
// that the master never had and that no replica used. The tick would then never run.
func (c *sender) learnReply(k call, r reply) {
	if len(k.parts) > 0 {
		c.learnSet(k, r)
		return
	}
	if r.err != nil || !r.acked || r.verdict == "late" || r.verdict == "dead" || r.now == 0 { // the last three replies have no state of the lock
		return
	}
	news := observed.State{Compact: r.compact || r.form != nil, Floor: r.floor, Longest: r.longest, Low: r.low, Ledger: r.ledger, Paused: r.paused, Seen: r.sent, Permanent: k.idle == 0}
	c.cfg.Observed.Learn(k.lock, news, c.cfg.Idle, r.now, r.inUse())
}

// learnSet records the state of each lock of a set. acquire_set.lua describes the order of the replies.
func (c *sender) learnSet(k call, r reply) {
	parts := r.parts
	if r.verdict == "refused" && len(parts) > 0 && r.place >= 1 && r.place <= len(k.parts) {
		refusal := parts[0]
		refusal.acked = r.acked
		c.learnReply(k.parts[r.place-1], refusal)
		parts = parts[1:]
	}
	for i := range min(len(parts), len(k.parts)) {
		parts[i].acked = r.acked
		c.learnReply(k.parts[i], parts[i])
	}
}
