package locking

import (
	"slices"
	"time"
)

// view is what the votes tell of the rows of others.
func (t *claim) view(votes []vote) view {
	v := view{slot: -1}
	v.now, v.latest, _ = t.bounds(t.cfg.Clock())
	if g, err := readRegister(valueOf(votes)); err == nil {
		v = t.viewOf(g, votes)
		t.suspect = count(v.shut, func(id string) bool { return g.Runs[id].Trigger != "" && id != t.r.ID })
	}
	v.rows = slices.DeleteFunc(v.rows, func(r nodeRow) bool { return r.id == t.r.ID })
	v.ballots = t.ballots
	v.full = t.full(v.rows)
	return v
}

// full tells whether each row surely is somebody else's: a majority has given it to the same one.
func (t *claim) full(rows []nodeRow) bool {
	held := map[int]bool{}
	for _, r := range rows {
		if r.votes >= t.majority && r.slot < t.r.Slots && !r.tentative {
			held[r.slot] = true
		}
	}
	return len(held) >= t.r.Slots
}

// grant makes the lease. It ends by the clock of each node not before it has lasted its length since it was sent.
func (t *claim) grant(votes []vote, sent time.Duration, out verdict) {
	now, _ := t.estimate(t.cfg.Clock())
	got := reply{verdict: "granted", now: now, floor: t.token, longest: t.r.Lease.Microseconds(), sent: sent, received: t.cfg.Clock(), acked: true,
		rest: []any{int64(out.run.Slot), out.run.Token, now + t.r.Lease.Microseconds(), out.run.Tick, int64(out.run.Attempt)}}
	got.partial = true // for all that was waited for
	got.narrow = !t.account && count(votes, func(v vote) bool { return v.asked }) <= t.majority
	t.answer = t.Client.grant(t.r, got, Answer{Verdict: Granted, ID: t.r.ID, Orphans: t.orphans})
	if n := len(t.ballots); n > 1 && out.run.Token > t.ballots[n-2] { // nodes that were not asked again may have rows of earlier tries
		t.quorum.drop(t.r.Lock, t.r.ID, t.ballots[n-2], t.r.Lease)
	}
}

// tell is the answer that is no grant.
func (t *claim) tell(out verdict) {
	t.end(Verdict(out.word), nil)
	t.answer.Outcome, t.answer.Until, t.answer.Holder, t.answer.Orphans = out.outcome, fromMicros(out.until), out.holder, t.orphans
	t.drop()
}

// drop takes back the rows that nodes may have given to this attempt. What has been sent before and arrives later finds that it is too late.
func (t *claim) drop() {
	if !t.placed {
		return
	}
	t.placed, t.floor = false, max(t.floor, t.token)
	t.quorum.drop(t.r.Lock, t.r.ID, t.token, t.r.Lease)
}

// drop has all nodes take back what they gave to attempts of a lease id up to a token, in the background.
func (q *quorum) drop(lock, id string, token int64, lease time.Duration) {
	q.releaseEverywhere(q.releaseOf(lock, id, -1, token, false), lease)
}

// releaseOf is the call that takes a lease id's votes back: those up to a token, or with 0 for good.
func (q *quorum) releaseOf(lock, id string, slot int, token int64, narrow bool) nodeCall {
	return nodeCall{script: q.scripts.release, keys: q.keys(lock, id), id: id, args: []any{slot, token, q.tombstoneLife(), flag(narrow)}}
}

// releaseEverywhere makes that call in the background, and on nodes that do not answer now as soon as they do, while the lease would last.
func (q *quorum) releaseEverywhere(k nodeCall, lease time.Duration) {
	end := q.cfg.Clock() + lease
	q.crew.launch(func() {
		_, _ = q.ask(q.life, poll{calls: []nodeCall{k}, everyone: true,
			sure:   func([][]vote, bool) bool { return false },
			missed: func(n *node) { n.owe(k, end) }})
	})
}
