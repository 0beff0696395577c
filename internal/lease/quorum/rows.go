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
	"github.com/cronclave/cronclave/internal/lease/register"
)

// adoptedIDs returns the lease ids of orphans that the claim adopts, whose rows are shut: none or one.
func (t *claim) adoptedIDs() []string {
	if t.r.Adopt == "" {
		return nil
	}
	return []string{t.r.Adopt}
}

// movesArg returns the rows of its lease id that the claim replaces, as an argument of the script: normally the rows of its own earlier attempts. If
// votes disagree that this call did not ask for, it replaces all rows except the rows of the run in the register; otherwise each call would renew
// them, and none would ever get a majority. If the request is not accounted for, it replaces all rows except the rows of a lease that is held: an
// earlier claim may have left rows, and a drop of them may still be on its way.
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

// handleWon handles votes in which a majority gave a row, if they agree on the slot and the token.
func (t *claim) handleWon(votes []vote, sent time.Duration) (time.Duration, bool) {
	slot, token, agree := mostAgreed(votes)
	if agree < t.majority { // an earlier attempt with the same id has left rows
		t.slot = max(slot, 0)
		if g, err := register.Read(valueOf(votes)); err == nil {
			t.mixed, t.keep = true, g.Runs[t.r.ID].Token
		}
		return t.retryIn("row")
	}
	t.slot = slot
	if !t.account {
		t.endGranted(votes, sent, register.Ruling{Run: register.Run{Slot: slot, Token: token, Attempt: 1}})
		return 0, true
	}
	v := t.viewOfVotes(votes)
	v.Slot, v.Token, v.Kept = slot, t.token, token
	return t.decideClaim(votes, v)
}

// mostAgreed returns the slot and the token that most nodes have given, and the number of these nodes.
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

// handleLost handles votes without a majority for a row: it tries another row, or tries later, or finds that all rows are held.
func (t *claim) handleLost(votes []vote) (time.Duration, bool) {
	if count(votes, vote.hasState) < t.majority {
		if countWords(votes, "stranger", "joining") > 0 { // a new quorum begins: the claims of a batch keep their order
			t.tries++
			return min(rejoinPause/10<<min(t.tries, 4), rejoinPause), false
		}
		return t.retryIn("row")
	}
	if countWords(votes, "stale", "far")+countWords(votes, "yes") >= t.majority { // no claim has it: the proposed token was too small
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
	if !v.Full && t.refused < mostRefused { // votes are split: the claims with votes give them back, and try again
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

// holdersConfirmed reports whether the same holders were seen in the round before. One of several rows may have been given back and another taken while the
// nodes were asked. A holder that was seen twice held its row in between, and if all were seen twice, all rows were held at once.
func (t *claim) holdersConfirmed(rows []register.NodeRow) bool {
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

// anotherSlot returns a row that a majority may still give, and that may run the tick by the register.
func (t *claim) anotherSlot(votes []vote, rows []register.NodeRow) (slot int, ok bool) {
	g, err := register.Read(valueOf(votes))
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
		if len(free) > 0 && t.refused == 0 { // the lowest row, until other claims turn out to want it, too
			break
		}
	}
	if len(free) == 0 {
		return 0, false
	}
	return free[rand.IntN(len(free))], true
}

// endHeld ends the claim: the lock is held. It sets the holder and the end of its lease.
func (t *claim) endHeld(rows []register.NodeRow) {
	t.endVerdict(lease.Held, nil)
	t.result.Orphans = t.orphans
	slices.SortFunc(rows, func(a, b register.NodeRow) int {
		return cmp.Or(cmp.Compare(b.Votes, a.Votes), cmp.Compare(a.Expiry, b.Expiry))
	})
	rows = slices.DeleteFunc(rows, func(r register.NodeRow) bool { return r.Votes < rows[0].Votes })
	if len(rows) > 0 {
		t.result.Until, t.result.Holder = clock.FromMicros(rows[0].Expiry), rows[0].Owner
	}
	t.dropRows()
}
