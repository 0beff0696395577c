package quorum

import (
	"slices"
	"time"
)

// maxFirstTries is the number of times that a claim asks the first node again after that node's floor has moved. After that, the claim asks all
// nodes, because the clock of the first node may be wrong.
const maxFirstTries = 2

// isTight reports whether no more than a majority of nodes is trusted to answer, so that a claim needs a row from each of them.
func (q *Store) isTight() bool {
	_, trusted, _ := q.nodeOrder()
	return trusted <= q.majority
}

// retryPhase returns the phase for a repetition after split votes. Usually the claim asks only the first node. Every fourth time it asks all nodes,
// because a dead client may have left a row on the first node.
func (t *claim) retryPhase() string {
	if t.refused%4 == 0 {
		return "row"
	}
	return "first"
}

// tookFirst handles the reply of the first node after a call to that node only. Of several concurrent claims, the one with the row on the first node
// asks the other nodes; the other claims ask no node for a row. If claims asked all nodes at once, each could get the row on another node, and none
// would get a majority, again and again. That happens to simultaneous claims if two of five masters hang.
//
// The order affects only how soon a claim succeeds, not the correctness. Clients that trust different nodes ask different nodes first, so their votes
// may still be split.
func (t *claim) tookFirst(votes []vote) (time.Duration, bool) {
	t.phase = "row"
	n := slices.IndexFunc(votes, vote.hasAnswered)
	if n < 0 { // ask the other nodes
		return 0, false
	}
	switch votes[n].word {
	case "held":
		t.phase = "read"
		if len(t.ballots) == 1 { // no node has a row of this claim
			t.placed = false
		}
	case "stale": // the reply has the floor of the node
		if t.firstTries++; t.firstTries <= maxFirstTries {
			t.phase = "first"
			t.tries++
			return randomPause(min(t.tries, 2)) / 4, false
		}
	}
	return 0, false
}
