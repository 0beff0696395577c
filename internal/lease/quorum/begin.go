package quorum

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/lease/script"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// QuietBefore is the time for which the masters must not have received any request before a new quorum begins without some of its masters. Masters
// that lost their data then see that they are not new, because a holder renews its lease within this time: see [Store.RenewAfter].
const QuietBefore = 30 * time.Second

// beginQuorum starts a new quorum while a minority of its nodes does not answer. All nodes that answer must be a majority, and must be new: they got
// their markers some time ago, and have received no request since. beginQuorum marks these nodes as founders. Once a majority are founders, it lets
// them vote. Any client can continue these steps if another client dies. A founder that loses its data is no longer a founder.
//
// A new node has never voted, so it may start to vote at any time. A node that has lost its data must not be taken for a new node. If a majority of
// nodes have lost their data, no majority has the state any more, and it is lost. See docs/decisions/018-quorum-membership.md.
func (q *rejoiner) beginQuorum(members []*membership) (left time.Duration, helped bool) {
	founders, others := 0, 0
	for _, m := range members {
		switch {
		case m == nil:
		case m.founder && (m.isNew() || m.state == votingState):
			founders++
		case !m.isNew():
			others++
		}
	}
	switch {
	case founders >= q.majority:
		return q.foundersVote(members)
	case others > 0 || hasVoter(members):
		return longestRejoinPause, false
	}
	left = rejoinPause
	for i, m := range members {
		if m != nil && !m.founder {
			left = max(left, q.markFounder(q.nodes[i], m.epoch))
		}
	}
	return left, false
}

func hasVoter(members []*membership) bool {
	return count(members, func(m *membership) bool { return m != nil && m.state == votingState }) > 0
}

// foundersVote lets the founders vote that do not vote yet.
func (q *rejoiner) foundersVote(members []*membership) (left time.Duration, helped bool) {
	for i, m := range members {
		switch {
		case m == nil || !m.founder || !m.isNew():
		case q.letVote(q.nodes[i], m.epoch, 0, 0):
			helped = true
		default:
			left = rejoinPause
		}
	}
	if left == 0 && !helped { // nodes that are not founders wait for a majority of voters
		left = longestRejoinPause
	}
	return left, helped
}

// markFounder marks a node as a founder. It returns the time until the next try, or 0 if the node is marked.
func (q *rejoiner) markFounder(n *node, epoch string) (left time.Duration) {
	ctx, cancel := context.WithTimeout(q.cfg.Work.Life(), q.cfg.Timeout)
	defer cancel()
	quiet := QuietBefore.Microseconds() + q.underWay()
	got, err := n.redis.EvalSha(ctx, q.scripts.Found.SHA, []string{q.env.memberKey}, script.QuorumFoundArgs{Epoch: epoch, Quiet: quiet}.Encode()...).Slice()
	switch {
	case err != nil || len(got) < 2:
		return rejoinPause
	case transport.Text(got[0]) == "wait":
		return time.Duration(transport.Number(got[1])) * time.Microsecond
	}
	return 0
}
