package quorum

import (
	"fmt"
	"slices"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// A vote is a node's reply to one call.
type vote struct {
	word  string
	now   int64 // the node's clock
	floor int64
	transport.Values
	err    error // the call failed; it may have been executed
	silent bool  // no answer has come yet
	absent bool  // silent, and no longer awaited
	asked  bool
}

func (v vote) hasAnswered() bool { return !v.silent && v.err == nil }

// cannotVote reports whether the node replied that it does not vote.
func (v vote) cannotVote() bool {
	return v.hasAnswered() && (v.word == "stranger" || v.word == "joining")
}

func readVote(raw []any) vote {
	if len(raw) < 3 {
		return vote{err: fmt.Errorf("%w: a reply of %d values from the server", lease.ErrUnknown, len(raw))}
	}
	v := vote{word: transport.Text(raw[0]), now: transport.Number(raw[1]), floor: transport.Number(raw[2]), Values: raw[3:]}
	if !lease.Sound(v.now, lease.MaxNumber) || !lease.Sound(v.floor, lease.MaxNumber) {
		return vote{err: fmt.Errorf("%w: %w: a reply from the server with time %d and floor %d", lease.ErrUnknown, lease.ErrCorrupt, v.now, v.floor)}
	}
	return v
}

// allFailed returns the votes of a node that has failed.
func allFailed(calls int, err error) []vote {
	votes := make([]vote, calls)
	for i := range votes {
		votes[i].err = transport.Unknown(err)
	}
	return votes
}

func count[T any](all []T, is func(T) bool) (n int) {
	for _, v := range all {
		if is(v) {
			n++
		}
	}
	return n
}

func countWords(votes []vote, word ...string) int {
	return count(votes, func(v vote) bool { return v.hasAnswered() && slices.Contains(word, v.word) })
}

// isRefused reports whether a node has failed or refused one of its calls.
func isRefused(votes []vote) bool {
	return slices.ContainsFunc(votes, func(v vote) bool {
		return v.err != nil || !slices.Contains([]string{"yes", "accepted", "renewed", "released"}, v.word)
	})
}

// A claimReply is the content of the reply to a claim or a read, after the common values.
type claimReply struct {
	slot         int
	token, limit int64
	ballot       int64
	value        string
	rows         []any // slot, row, slot, row, ...
	permanent    bool
}

func (v vote) asClaim() claimReply {
	return claimReply{slot: int(v.Number(0)), token: v.Number(1), limit: v.Number(2), ballot: v.Number(3), value: v.Text(4), rows: v.List(5),
		permanent: v.Text(6) != ""}
}

// hasState reports whether a vote comes from a voting node and has the state of that node.
func (v vote) hasState() bool {
	return v.hasAnswered() && slices.Contains([]string{"yes", "held", "seen", "promised", "stale", "far", "limit"}, v.word)
}

// newestRegister returns the register with the greatest ballot, and the number of nodes that have accepted that ballot.
func newestRegister(votes []vote) (value string, ballot int64, agree int) {
	for _, v := range votes {
		if !v.hasState() {
			continue
		}
		switch r := v.asClaim(); {
		case agree == 0 || r.ballot > ballot:
			value, ballot, agree = r.value, r.ballot, 1
		case r.ballot == ballot:
			agree++
		}
	}
	return value, ballot, agree
}

func valueOf(votes []vote) string {
	value, _, _ := newestRegister(votes)
	return value
}

// floorOf returns the greatest floor among the votes.
func floorOf(votes []vote) (floor int64) {
	for _, v := range votes {
		if v.hasAnswered() {
			floor = max(floor, v.floor)
		}
	}
	return floor
}

// silentNodes returns the number of nodes whose answer is still awaited.
func silentNodes(votes []vote) int {
	return count(votes, func(v vote) bool { return v.silent && !v.absent })
}
