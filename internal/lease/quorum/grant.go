package quorum

import (
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/rules"
)

// viewOfVotes returns the view of the votes for this claim: the rows of other leases, and whether all slots are held.
func (t *claim) viewOfVotes(votes []vote) rules.View {
	v := rules.View{Slot: -1}
	v.Now, v.Latest, _ = t.clockBounds(t.cfg.Clock())
	if g, err := rules.Read(valueOf(votes)); err == nil {
		v = t.viewOf(g, votes)
		t.suspect = count(v.Shut, func(id string) bool { return g.Runs[id].Trigger != "" && id != t.r.ID })
		v.Full = t.allHeld(g, v.Rows)
	}
	v.Rows = slices.DeleteFunc(v.Rows, func(r rules.NodeRow) bool { return r.ID == t.r.ID })
	v.Ballots = t.ballots
	return v
}

// allHeld reports whether each slot is certainly held by another lease: a majority has given the slot to the same lease, and the run of that lease
// has not ended. The nodes answer at different times, so one reply may have the end of a run while a majority still reports its row.
func (t *claim) allHeld(g *rules.Register, rows []rules.NodeRow) bool {
	held := map[int]bool{}
	for _, r := range rows {
		if r.ID != t.r.ID && r.Votes >= t.majority && r.Slot < t.r.Slots && r.State != rules.RowTentative && !r.Over(g) {
			held[r.Slot] = true
		}
	}
	return len(held) >= t.r.Slots
}

// endGranted ends the claim with a grant. The lease counts from sent, so it does not end earlier on any node.
func (t *claim) endGranted(votes []vote, sent time.Duration, out rules.Ruling) {
	now, _ := t.Estimate(t.cfg.Clock())
	length := t.r.Lease
	few := !t.account && count(votes, func(v vote) bool { return v.asked }) <= t.majority
	t.result = lease.Result{Verdict: lease.Granted, Orphans: t.orphans, Grant: lease.Grant{
		Slot: out.Run.Slot, Token: lease.Token(out.Run.Token), Tick: out.Run.Tick, Attempt: int64(out.Run.Attempt), Expiry: now + length.Microseconds(), Now: now,
		Known: lease.Known{Floor: t.token, Longest: length.Microseconds()}, Sent: sent, Received: t.cfg.Clock(),
		RenewAfter: min(t.RenewAfter(length), SpreadAfter), Ticket: newTicket(few)}}
	if err := t.result.Grant.Check(t.r); err != nil {
		t.result.Verdict, t.result.Err = lease.Unknown, err
	}
	t.offers.removeOffer(t.r.ID)
	if n := len(t.ballots); n > 1 && out.Run.Token > t.ballots[n-2] { // nodes that were not asked again may have rows of earlier tries
		t.Store.dropVotes(t.r.Lock, t.r.ID, t.ballots[n-2], t.r.Lease)
	}
}

// endWith ends the claim with an answer that is not a grant.
func (t *claim) endWith(out rules.Ruling) {
	t.offers.removeOffer(t.r.ID)
	t.endVerdict(lease.Verdict(out.Word), nil)
	t.result.Outcome, t.result.Until, t.result.Holder, t.result.Orphans = out.Outcome, clock.FromMicros(out.Until), out.Holder, t.orphans
	t.dropRows()
}

// dropRows takes back the rows that nodes may have given to this claim, unless the claim may have been granted. Nodes refuse earlier requests that
// arrive later.
func (t *claim) dropRows() {
	if !t.placed || t.offers.isOpen(t.r.ID, t.cfg.Clock()) {
		return
	}
	t.placed, t.floor = false, max(t.floor, t.token)
	t.Store.dropVotes(t.r.Lock, t.r.ID, t.token, t.r.Lease)
}
