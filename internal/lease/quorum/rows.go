package quorum

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/redis"
	"github.com/cronclave/cronclave/internal/lease/rules"
)

// adoptedIDs returns the lease id of the orphan that the claim adopts, if any. Nodes must promise to refuse rows of this id.
func (t *claim) adoptedIDs() []string {
	if t.r.Adopt == "" {
		return nil
	}
	return []string{t.r.Adopt}
}

// movesArg returns the script argument that selects the rows of the claim's lease id that the claim replaces. Usually these are the rows of its own
// earlier tries. If an earlier call has left rows that disagree, the claim replaces all rows except the row of the run in the register. Otherwise
// each call would renew the leftover rows, and no row would get a majority. A claim that is not accounted for replaces all rows except the row of a
// lease that the client holds.
func (t *claim) movesArg() string {
	if !t.account {
		return fmt.Sprintf("but,%d,", t.store.cfg.HeldToken(t.r.ID))
	}
	if t.mixed {
		return fmt.Sprintf("but,%d,", t.keep)
	}
	if len(t.ballots) == 0 {
		return ""
	}
	text := []byte{','}
	for _, b := range t.ballots {
		text = append(strconv.AppendInt(text, b, 10), ',')
	}
	return string(text)
}

// handleWon handles votes in which a majority gave a row. The lease is granted only if a majority also agrees on the slot and the token.
func (t *claim) handleWon(votes []vote, sent time.Duration) (time.Duration, bool) {
	slot, token, agree := mostAgreed(votes)
	if agree < t.store.majority { // an earlier call with the same id has left rows
		t.slot = max(slot, 0)
		if g, err := rules.Read(valueOf(votes)); err == nil {
			t.mixed, t.keep = true, g.Runs[t.r.ID].Token
		}
		return t.retryIn("row")
	}
	t.slot = slot
	if !t.account {
		t.endGranted(votes, sent, rules.Ruling{Run: rules.Run{Slot: slot, Token: token, Attempt: 1}})
		return 0, true
	}
	v := t.viewOfVotes(votes)
	v.Slot, v.Token, v.Kept = slot, t.token, token
	return t.decideClaim(votes, v)
}

// mostAgreed returns the slot and the token that most nodes gave, and the number of these nodes.
func mostAgreed(votes []vote) (slot int, token int64, agree int) {
	for _, v := range votes {
		if !v.hasAnswered() || v.word != "yes" {
			continue
		}
		of := v.asClaim()
		same := count(votes, func(w vote) bool {
			return w.hasAnswered() && w.word == "yes" && w.asClaim().slot == of.slot && w.asClaim().token == of.token
		})
		if same > agree {
			slot, token, agree = of.slot, of.token, same
		}
	}
	return slot, token, agree
}

// handleLost handles votes without a majority for a row. The claim then asks for another row, retries later, or ends because all rows are held.
func (t *claim) handleLost(votes []vote) (time.Duration, bool) {
	if count(votes, vote.hasState) < t.store.majority {
		if countWords(votes, "stranger", "joining") > 0 { // a new quorum is starting: pause without jitter, so that the claims of a batch keep their order
			t.tries++
			return min(rejoinPause/10<<min(t.tries, 4), rejoinPause), false
		}
		return t.retryIn("row")
	}
	if countWords(votes, "stale", "far")+countWords(votes, "yes") >= t.store.majority { // the row is free, but nodes refused the token: propose a new one soon
		t.tries++
		return randomPause(min(t.tries, 2)) / 4, false
	}
	v := t.viewOfVotes(votes)
	if slot, ok := t.anotherSlot(votes, v.Rows); ok && t.refused < mostRefused {
		moved := slot != t.slot
		t.slot = slot
		if t.refused++; moved && t.refused < 3 {
			return 0, false
		}
		t.dropRows()
		return t.retryIn(t.retryPhase())
	}
	if !v.Full && t.refused < mostRefused { // votes are split: give back this claim's rows, and retry
		t.refused++
		t.dropRows()
		return t.retryIn(t.retryPhase())
	}
	if v.Full && !t.holdersConfirmed(v.Rows) {
		return 0, false
	}
	if t.account {
		return t.answerFromRead(votes)
	}
	t.endHeld(v.Rows)
	return 0, true
}

// holdersConfirmed reports whether the previous round found the same holders. The nodes answer a round at different times: meanwhile one holder may
// give back its row, and another client may take a different row. A holder that both rounds found has held its row in between. If that is true of all
// holders, all rows were held at the same time.
func (t *claim) holdersConfirmed(rows []rules.NodeRow) bool {
	if t.r.Slots == 1 {
		return true
	}
	before := t.holders
	t.holders = nil
	same := true
	for _, r := range rows {
		t.holders = append(t.holders, r.ID)
		same = same && (r.Votes < t.store.majority || slices.Contains(before, r.ID))
	}
	return same
}

// anotherSlot returns a slot that a majority may still give, and in which the register allows the tick to run.
func (t *claim) anotherSlot(votes []vote, rows []rules.NodeRow) (slot int, ok bool) {
	g, err := rules.Read(valueOf(votes))
	if err != nil {
		return 0, false
	}
	reached := count(votes, func(v vote) bool { return v.hasState() || v.silent && !v.absent })
	var free []int
	for s := range t.r.Slots {
		taken := 0
		for _, r := range rows {
			if r.Slot == s {
				taken += r.Votes
			}
		}
		if reached-taken >= t.store.majority && g.Fits(t.r, s) {
			free = append(free, s)
		}
		if len(free) > 0 && t.refused == 0 { // the first try takes the lowest slot; later tries take a random one, because other claims compete
			break
		}
	}
	if len(free) == 0 {
		return 0, false
	}
	return free[rand.IntN(len(free))], true
}

// endHeld ends the claim with the verdict held. The result has the holder whose lease ends first, and the end of that lease.
func (t *claim) endHeld(rows []rules.NodeRow) {
	t.endVerdict(lease.Held, nil)
	t.result.Orphans = t.orphans
	slices.SortFunc(rows, func(a, b rules.NodeRow) int {
		return cmp.Or(cmp.Compare(b.Votes, a.Votes), cmp.Compare(a.Expiry, b.Expiry))
	})
	rows = slices.DeleteFunc(rows, func(r rules.NodeRow) bool { return r.Votes < rows[0].Votes })
	if len(rows) > 0 {
		t.result.Until, t.result.Holder = lease.FromMicros(rows[0].Expiry), rows[0].Owner
	}
	t.dropRows()
}

// maxFirstTries is the number of times that a claim asks the first node again after this node refused the token as too small. Then the claim asks all
// nodes, because the clock of the first node may be wrong.
const maxFirstTries = 2

// isTight reports whether at most a majority of the nodes is trusted to answer, so that a claim needs a row from each of them.
func (q *Store) isTight() bool {
	_, trusted, _ := q.nodeOrder()
	return trusted <= q.majority
}

// retryPhase returns the phase in which a claim retries after split votes. Usually the claim asks only the first node. Every fourth time it asks all
// nodes, because a dead client may have left a row on the first node.
func (t *claim) retryPhase() string {
	if t.refused%4 == 0 {
		return "row"
	}
	return "first"
}

// tookFirst handles the reply of the first node after a call to that node only. Of several concurrent claims, only the claim that got the row on the
// first node asks the other nodes for the row. If all claims asked all nodes at once, each could get the row on a different node, and none would get
// a majority, again and again. That happens to simultaneous claims if two of five masters hang.
//
// This order makes claims succeed sooner, but correctness does not depend on it. Clients that trust different nodes begin with different nodes, so
// their votes may still be split.
func (t *claim) tookFirst(votes []vote) (time.Duration, bool) {
	t.phase = "row"
	n := slices.IndexFunc(votes, vote.hasAnswered)
	if n < 0 { // the first node has not answered: ask all nodes
		return 0, false
	}
	switch votes[n].word {
	case "held":
		t.phase = "read"
		if len(t.ballots) == 1 { // the claim has asked only this node for a row, so no node has a row of the claim
			t.placed = false
		}
	case "stale": // the token was not above the node's floor; the next token is above the floor in the reply
		if t.firstTries++; t.firstTries <= maxFirstTries {
			t.phase = "first"
			t.tries++
			return randomPause(min(t.tries, 2)) / 4, false
		}
	}
	return 0, false
}

// viewOfVotes returns the view of the votes for this claim: the rows of other leases, and whether all slots are held.
func (t *claim) viewOfVotes(votes []vote) rules.View {
	v := rules.View{Slot: -1}
	v.Now, v.Latest, _ = t.store.clockBounds(t.store.cfg.Clock())
	if g, err := rules.Read(valueOf(votes)); err == nil {
		v = t.store.viewOf(g, votes)
		t.suspect = count(v.Shut, func(id string) bool { return g.Runs[id].Trigger != "" && id != t.r.ID })
		v.Full = t.allHeld(g, v.Rows)
	}
	v.Rows = slices.DeleteFunc(v.Rows, func(r rules.NodeRow) bool { return r.ID == t.r.ID })
	v.Ballots = t.ballots
	return v
}

// allHeld reports whether each slot is certainly held by another lease: a majority has given the slot to the same lease, and that lease's run is not
// over. The nodes answer at different times, so one reply may show the end of a run while a majority still reports its row.
func (t *claim) allHeld(g *rules.Register, rows []rules.NodeRow) bool {
	held := map[int]bool{}
	for _, r := range rows {
		if r.ID != t.r.ID && r.Votes >= t.store.majority && r.Slot < t.r.Slots && r.State != rules.RowTentative && !r.Over(g) {
			held[r.Slot] = true
		}
	}
	return len(held) >= t.r.Slots
}

// endGranted ends the claim with a grant. The lease counts from sent, before the request, so that the holder stops before a node's row expires.
func (t *claim) endGranted(votes []vote, sent time.Duration, out rules.Ruling) {
	now, _ := t.store.Estimate(t.store.cfg.Clock())
	length := t.r.Lease
	few := !t.account && count(votes, func(v vote) bool { return v.asked }) <= t.store.majority
	t.result = lease.Result{Verdict: lease.Granted, Orphans: t.orphans, Grant: lease.Grant{
		Slot: out.Run.Slot, Token: lease.Token(out.Run.Token), Tick: out.Run.Tick, Attempt: int64(out.Run.Attempt), Expiry: now + length.Microseconds(), Now: now,
		Known: lease.Known{Floor: t.token, Longest: length.Microseconds()}, Sent: sent, Received: t.store.cfg.Clock(),
		RenewAfter: min(t.store.RenewAfter(length), SpreadAfter), Ticket: newTicket(few)}}
	if err := t.result.Grant.Check(t.r); err != nil {
		t.result.Verdict, t.result.Err = lease.Unknown, err
	}
	t.store.offers.removeOffer(t.r.ID)
	if n := len(t.ballots); n > 1 && out.Run.Token > t.ballots[n-2] { // nodes that were not asked again may have rows of earlier tries
		t.store.dropVotes(t.r.Lock, t.r.ID, t.ballots[n-2], t.r.Lease)
	}
}

// endWith ends the claim with an answer that is not a grant.
func (t *claim) endWith(out rules.Ruling) {
	t.store.offers.removeOffer(t.r.ID)
	t.endVerdict(lease.Verdict(out.Word), nil)
	t.result.Outcome, t.result.Until, t.result.Holder, t.result.Orphans = out.Outcome, lease.FromMicros(out.Until), out.Holder, t.orphans
	t.dropRows()
}

// dropRows takes back the rows that nodes may have given to this claim, unless the claim may have been granted. Afterwards the nodes refuse earlier
// requests of the claim that arrive late.
func (t *claim) dropRows() {
	if !t.placed || t.store.offers.isOpen(t.r.ID, t.store.cfg.Clock()) {
		return
	}
	t.placed, t.floor = false, max(t.floor, t.token)
	t.store.dropVotes(t.r.Lock, t.r.ID, t.token, t.r.Lease)
}

// liveRows returns the rows whose lease, or whose delay after the lease, has not ended by the clock of the node that reports the row.
func liveRows(votes []vote) []rules.NodeRow {
	var rows []rules.NodeRow
	for _, v := range votes {
		if !v.hasState() {
			continue
		}
		list := v.asClaim().rows
		for i := 0; i+1 < len(list); i += 2 {
			row, delay, ok := parseNodeRow(redis.Text(list[i+1]))
			if row.Slot = int(redis.Number(list[i])); !ok || row.Expiry+delay <= v.now {
				continue
			}
			at := slices.IndexFunc(rows, func(r rules.NodeRow) bool { return r.Slot == row.Slot && r.ID == row.ID })
			if at < 0 {
				rows = append(rows, row)
				at = len(rows) - 1
			}
			rows[at].Votes++
			rows[at].Expiry = max(rows[at].Expiry, row.Expiry)
			if rows[at].State == rules.RowTentative || row.State == rules.RowEntered {
				rows[at].State = row.State
			}
		}
	}
	return rows
}

// parseNodeRow parses "id\ntoken\nexpiry\nlease\ndelay\nstate\nowner", as lua/quorum.lua writes it.
func parseNodeRow(s string) (row rules.NodeRow, delay int64, ok bool) {
	part := strings.SplitN(s, "\n", 7)
	if len(part) < 7 {
		return rules.NodeRow{}, 0, false
	}
	return rules.NodeRow{ID: part[0], Token: lease.ParseNumber(part[1]), Expiry: lease.ParseNumber(part[2]), Lease: lease.ParseNumber(part[3]),
		State: part[5], Owner: part[6]}, lease.ParseNumber(part[4]), true
}
