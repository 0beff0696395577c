package quorum

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/rules"
)

// adoptedIDs returns the lease id of the orphan that the claim adopts, if any. Nodes must promise not to accept rows of this id.
func (t *claim) adoptedIDs() []string {
	if t.r.Adopt == "" {
		return nil
	}
	return []string{t.r.Adopt}
}

// movesArg returns the script argument that selects which rows of the claim's lease id the claim replaces. Normally these are the rows of its own
// earlier tries. If an earlier call has left rows that disagree, the claim replaces all rows except those of the run in the register; otherwise each
// call would renew the leftover rows, and none would get a majority. If the request is not accounted for, the claim replaces all rows except those of
// a lease that is held.
func (t *claim) movesArg() string {
	if !t.account {
		return fmt.Sprintf("but,%d,", t.cfg.HeldToken(t.r.ID))
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

// handleWon handles votes in which a majority gave a row. The grant requires that a majority agrees on the slot and the token.
func (t *claim) handleWon(votes []vote, sent time.Duration) (time.Duration, bool) {
	slot, token, agree := mostAgreed(votes)
	if agree < t.majority { // an earlier call with the same id has left rows
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
	if count(votes, vote.hasState) < t.majority {
		if countWords(votes, "stranger", "joining") > 0 { // a new quorum is starting: pause without jitter, so that the claims of a batch keep their order
			t.tries++
			return min(rejoinPause/10<<min(t.tries, 4), rejoinPause), false
		}
		return t.retryIn("row")
	}
	if countWords(votes, "stale", "far")+countWords(votes, "yes") >= t.majority { // no claim has the row: the proposed token was too small
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

// holdersConfirmed reports whether the previous round saw the same holders. During one round, a holder may give back a row and another client may
// take a different row. A holder seen in both rounds held its row in between. If all holders were seen in both rounds, all rows were held at the same
// time.
func (t *claim) holdersConfirmed(rows []rules.NodeRow) bool {
	if t.r.Slots == 1 {
		return true
	}
	before := t.holders
	t.holders = nil
	same := true
	for _, r := range rows {
		t.holders = append(t.holders, r.ID)
		same = same && (r.Votes < t.majority || slices.Contains(before, r.ID))
	}
	return same
}

// anotherSlot returns a slot that a majority may still give, and in which the register allows the tick.
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
		if reached-taken >= t.majority && g.Fits(t.r, s) {
			free = append(free, s)
		}
		if len(free) > 0 && t.refused == 0 { // use the lowest slot, unless other claims compete for it
			break
		}
	}
	if len(free) == 0 {
		return 0, false
	}
	return free[rand.IntN(len(free))], true
}

// endHeld ends the claim with the verdict held. It returns the holder whose lease ends first, and the end of that lease.
func (t *claim) endHeld(rows []rules.NodeRow) {
	t.endVerdict(lease.Held, nil)
	t.result.Orphans = t.orphans
	slices.SortFunc(rows, func(a, b rules.NodeRow) int {
		return cmp.Or(cmp.Compare(b.Votes, a.Votes), cmp.Compare(a.Expiry, b.Expiry))
	})
	rows = slices.DeleteFunc(rows, func(r rules.NodeRow) bool { return r.Votes < rows[0].Votes })
	if len(rows) > 0 {
		t.result.Until, t.result.Holder = clock.FromMicros(rows[0].Expiry), rows[0].Owner
	}
	t.dropRows()
}
