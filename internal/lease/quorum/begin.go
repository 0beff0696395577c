package quorum

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/lease/script"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// QuietBefore is the time for which nothing may have reached the masters of a new quorum that begins while some of them are away. A holder that they
// have forgotten tries to renew its lease within that time, as long as the lease lasts: see [Store.RenewAfter].
const QuietBefore = 30 * time.Second

// beginQuorum starts a new quorum while a minority of its nodes is away. All nodes that answer, a majority, must be new: they got their markers some time
// ago, and nothing has reached them since. They are first marked as founders, and vote when a majority is. If a client dies in between, or another
// one reaches other nodes, it goes on from there. A founder that forgets is no longer one.
//
// A new node has never voted, so it may vote at any time. But a node that has forgotten must not pass for new. If so many have forgotten that a
// majority seems to be new, the state was not on a majority any more. See docs/decisions/018-quorum-membership.md.
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

// foundersVote admits the founders that do not vote yet.
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
	if left == 0 && !helped { // the other nodes wait for a majority of voters
		left = longestRejoinPause
	}
	return left, helped
}

// markFounder marks a node as a founder. It returns the time until the next attempt, or 0 if the node is marked.
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
