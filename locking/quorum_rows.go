package locking

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// won has the same row on a majority, if they agree on the slot and the token.
func (t *claim) won(votes []vote, sent time.Duration) (time.Duration, bool) {
	slot, token, agree := agreed(votes)
	if agree < t.majority { // what is left of an earlier try of the same id
		t.slot = max(slot, 0)
		if g, err := readRegister(valueOf(votes)); err == nil {
			t.mixed, t.keep = true, g.Runs[t.r.ID].Token
		}
		return t.retry("row")
	}
	t.slot = slot
	if !t.account {
		t.grant(votes, sent, verdict{run: runRow{Slot: slot, Token: token, Attempt: 1}})
		return 0, true
	}
	v := t.view(votes)
	v.slot, v.token, v.kept = slot, t.token, token
	return t.decide(votes, v)
}

// agreed is the slot and the token that most of the nodes have given.
func agreed(votes []vote) (slot int, token int64, agree int) {
	for _, v := range votes {
		if !v.heard() || v.word != "yes" {
			continue
		}
		of := v.claim()
		same := count(votes, func(w vote) bool {
			return w.heard() && w.word == "yes" && w.claim().slot == of.slot && w.claim().token == of.token
		})
		if same > agree {
			slot, token, agree = of.slot, of.token, same
		}
	}
	return slot, token, agree
}

// lost has no majority for its row: it tries another one, or later, or finds that all are held.
func (t *claim) lost(votes []vote) (time.Duration, bool) {
	if count(votes, vote.told) < t.majority {
		if words(votes, "stranger", "joining") > 0 { // a quorum that begins: those of a batch keep their order
			t.tries++
			return min(tendPause/10<<min(t.tries, 4), tendPause), false
		}
		return t.retry("row")
	}
	if words(votes, "stale", "far")+words(votes, "yes") >= t.majority { // nobody has it: the proposal was too small
		t.tries++
		return randomPause(min(t.tries, 2)) / 4, false
	}
	v := t.view(votes)
	if slot, ok := t.another(votes, v.rows); ok && t.refused < mostRefused {
		moved := slot != t.slot
		t.slot = slot
		if t.refused++; moved && t.refused < 3 {
			return 0, false
		}
		t.drop()
		return t.retry(t.anew())
	}
	if !v.full && t.refused < mostRefused { // votes are split: those who have them let go, and come again
		t.refused++
		t.drop()
		return t.retry(t.anew())
	}
	if v.full && !t.confirmed(v.rows) {
		return 0, false
	}
	if t.account {
		return t.read(votes)
	}
	t.refuse(v.rows)
	return 0, true
}

// confirmed tells whether the same holders were seen a round before. Of several rows, one may have been let go and another taken while the nodes
// were asked; who was seen before and is seen again held its row in between, and so did the others.
func (t *claim) confirmed(rows []nodeRow) bool {
	if t.r.Slots == 1 {
		return true
	}
	before := t.holders
	t.holders = nil
	same := true
	for _, r := range rows {
		t.holders = append(t.holders, r.id)
		same = same && (r.votes < t.majority || slices.Contains(before, r.id))
	}
	return same
}

// another is a row that a majority may still give, in view of what the register says of the tick.
func (t *claim) another(votes []vote, rows []nodeRow) (slot int, ok bool) {
	g, err := readRegister(valueOf(votes))
	if err != nil {
		return 0, false
	}
	reached := count(votes, func(v vote) bool { return v.told() || v.silent && !v.absent })
	var free []int
	for s := range t.r.Slots {
		taken := 0
		for _, r := range rows {
			if r.slot == s {
				taken += r.votes
			}
		}
		if reached-taken >= t.majority && g.fits(t.r, s) {
			free = append(free, s)
		}
		if len(free) > 0 && t.refused == 0 { // the lowest, until others turn out to want it too
			break
		}
	}
	if len(free) == 0 {
		return 0, false
	}
	return free[rand.IntN(len(free))], true
}

// refuse says that the lock is held, by whom and until when.
func (t *claim) refuse(rows []nodeRow) {
	t.end(Held, nil)
	t.answer.Orphans = t.orphans
	slices.SortFunc(rows, func(a, b nodeRow) int { return cmp.Or(cmp.Compare(b.votes, a.votes), cmp.Compare(a.expiry, b.expiry)) })
	rows = slices.DeleteFunc(rows, func(r nodeRow) bool { return r.votes < rows[0].votes })
	if len(rows) > 0 {
		t.answer.Until, t.answer.Holder = fromMicros(rows[0].expiry), rows[0].owner
	}
	t.drop()
}
