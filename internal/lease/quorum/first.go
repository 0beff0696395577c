package quorum

import (
	"slices"
	"time"
)

// maxFirstTries is the number of times that a claim asks the first node again after its floor has moved. Beyond that, the node's clock may be wrong,
// and the other nodes may grant all the same.
const maxFirstTries = 2

// isTight reports whether no more than a majority can be trusted to answer. Then each of these nodes has to give a claim its row.
func (q *Store) isTight() bool {
	_, trusted, _ := q.nodeOrder()
	return trusted <= q.majority
}

// retryPhase returns the phase in which a claim asks again after split votes: usually the first node alone, but now and then all nodes, because the
// row on the first node may be left over from a dead claimant.
func (t *claim) retryPhase() string {
	if t.refused%4 == 0 {
		return "row"
	}
	return "first"
}

// tookFirst handles the answer of the first node, which was asked alone. Claims that meet there have a winner at once: the claim with its row asks
// the other nodes, and the others ask no node for a row. If all nodes were asked together, each of three nodes that have to agree could be reached by
// another claim first, and no claim would have them all, again and again. That happens to claims of the same instant if two of five masters hang.
//
// This only affects when a claim gets through. Nothing else depends on it: clients that trust different nodes ask different ones first, and their
// votes may be split.
func (t *claim) tookFirst(votes []vote) (time.Duration, bool) {
	t.phase = "row"
	n := slices.IndexFunc(votes, vote.hasAnswered)
	if n < 0 { // the other nodes may know more
		return 0, false
	}
	switch votes[n].word {
	case "held":
		t.phase = "read"
		if len(t.ballots) == 1 { // no node has a row of it
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
