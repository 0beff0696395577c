package engine

import (
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/register"
	"github.com/cronclave/cronclave/internal/lease/script"
)

// view returns the rows of other leases as the votes report them.
func (t *claim) view(votes []vote) register.View {
	v := register.View{Slot: -1}
	v.Now, v.Latest, _ = t.bounds(t.cfg.Clock())
	if g, err := register.Read(valueOf(votes)); err == nil {
		v = t.viewOf(g, votes)
		t.suspect = count(v.Shut, func(id string) bool { return g.Runs[id].Trigger != "" && id != t.r.ID })
		v.Full = t.full(g, v.Rows)
	}
	v.Rows = slices.DeleteFunc(v.Rows, func(r register.NodeRow) bool { return r.ID == t.r.ID })
	v.Ballots = t.ballots
	return v
}

// full reports whether each slot surely belongs to another lease: a majority has given it to the same lease,
// which has not ended meanwhile. Nodes answer one after the other: one of them may have the end of a run in its
// register, and a majority still its row.
func (t *claim) full(g *register.Register, rows []register.NodeRow) bool {
	held := map[int]bool{}
	for _, r := range rows {
		if r.ID != t.r.ID && r.Votes >= t.majority && r.Slot < t.r.Slots && r.State != register.RowTentative && !r.Over(g) {
			held[r.Slot] = true
		}
	}
	return len(held) >= t.r.Slots
}

// grant makes the lease. It ends by the clock of each node not before it has lasted its length since it was sent.
func (t *claim) grant(votes []vote, sent time.Duration, out register.Ruling) {
	now, _ := t.estimate(t.cfg.Clock())
	got := reply{verdict: "granted", now: now, floor: t.token, longest: t.r.Lease.Microseconds(), sent: sent, received: t.cfg.Clock(), acked: true,
		Values: []any{int64(out.Run.Slot), out.Run.Token, now + t.r.Lease.Microseconds(), out.Run.Tick, int64(out.Run.Attempt)}}
	got.partial = true // for all that was waited for
	got.narrow = !t.account && count(votes, func(v vote) bool { return v.asked }) <= t.majority
	t.offers.closed(t.r.ID)
	t.answer = t.Client.grant(t.r, got, Answer{Verdict: Granted, ID: t.r.ID, Orphans: t.orphans})
	if n := len(t.ballots); n > 1 && out.Run.Token > t.ballots[n-2] { // nodes that were not asked again may have rows of earlier tries
		t.quorum.drop(t.r.Lock, t.r.ID, t.ballots[n-2], t.r.Lease)
	}
}

// tell ends the claim with an answer that is no grant.
func (t *claim) tell(out register.Ruling) {
	t.offers.closed(t.r.ID)
	t.end(Verdict(out.Word), nil)
	t.answer.Outcome, t.answer.Until, t.answer.Holder, t.answer.Orphans = out.Outcome, clock.FromMicros(out.Until), out.Holder, t.orphans
	t.drop()
}

// drop takes back the rows that nodes may have given to this attempt, unless it may be granted. A request that was sent before and arrives
// later finds that it is too late.
func (t *claim) drop() {
	if !t.placed || t.offers.open(t.r.ID, t.cfg.Clock()) {
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
	args := script.QuorumReleaseArgs{Slot: slot, Token: token, TombstoneLife: q.tombstoneLife(), Narrow: narrow}
	return nodeCall{script: q.scripts.Release, keys: q.keys(lock, id), id: id, args: args.Encode()}
}

// releaseEverywhere makes that call in the background, and on nodes that do not answer now as soon as they do, while the lease would last.
func (q *quorum) releaseEverywhere(k nodeCall, lease time.Duration) {
	end := q.cfg.Clock() + lease
	q.workers.launch(func() {
		_, _ = q.ask(q.work.Life(), poll{calls: []nodeCall{k}, everyone: true,
			sure:   func([][]vote, bool) bool { return false },
			missed: func(n *node) { n.owe(k, end) }})
	})
}
