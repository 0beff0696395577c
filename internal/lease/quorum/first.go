package quorum

import (
	"slices"
	"time"
)

// maxFirstTries is how often a claim asks the first node again whose floor has moved on meanwhile. Where its clock is wrong others may grant all the same.
const maxFirstTries = 2

// tight reports that no more than a majority can be trusted to answer: each of those nodes has to give a claim
// its row.
func (q *Store) tight() bool {
	_, trusted, _ := q.order()
	return trusted <= q.majority
}

// retryPhase is the phase in which a claim asks again whose votes were split: the first node alone, but now and then all, since what the first one has may be
// left over from a claimant that is dead.
func (t *claim) retryPhase() string {
	if t.refused%4 == 0 {
		return "row"
	}
	return "first"
}

// tookFirst goes on when the first node, which was asked alone, has answered. Claims that meet there have a
// winner at once: the claim that has its row asks the others, and a claim without it asks none of them for one.
// (If all were asked together, each of three nodes that have to agree could be reached by another claim first,
// and no claim would have them all, each time. It happens to claims of the same instant where two of five
// masters hang, and one claim in some there is one that waits.)
//
// That is about when a claim gets through only. Nothing rests on it: where clients do not trust the same nodes to answer they ask different ones first, and votes are
// split as ever.
func (t *claim) tookFirst(votes []vote) (time.Duration, bool) {
	t.phase = "row"
	n := slices.IndexFunc(votes, vote.answered)
	if n < 0 { // the others may know more
		return 0, false
	}
	switch votes[n].word {
	case "held":
		t.phase = "read"
		if len(t.ballots) == 1 { // it has no row anywhere
			t.placed = false
		}
	case "stale": // its floor is known now
		if t.firstTries++; t.firstTries <= maxFirstTries {
			t.phase = "first"
			t.tries++
			return randomPause(min(t.tries, 2)) / 4, false
		}
	}
	return 0, false
}
