package quorum

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cronclave/cronclave/internal/lease/transport"
)

// A poll sends the same calls to the nodes, in one or two waves.
type poll struct {
	calls []nodeCall
	wave  int // the number of trusted nodes in the first wave; other nodes follow if one of these fails, refuses or is slow
	// first asks only the first node.
	first bool
	// everyone asks all nodes in the first wave, including untrusted nodes, which may only be slow and have rows to take back.
	everyone bool
	// patience multiplies the time after which a node is slow; 0 is 1.
	patience int
	// sure reports whether the votes, by call and node, are enough. late is true once slow nodes are no longer awaited.
	sure func(votes [][]vote, late bool) bool
	// missed is called for a node whose call failed, even after the poll has ended.
	missed func(n *node)
}

// A returned is the answer of one node.
type returned struct {
	node  int
	votes []vote
}

// A polling is the state of a poll under way.
type polling struct {
	of *masters
	poll
	order    []int    // the trusted nodes first
	trusted  int      // the number of trusted nodes
	votes    [][]vote // by call and node
	back     chan returned
	asked    int
	received int
	replies  int // the number of received answers that are replies of Redis, not failures
	late     bool

	ctx  context.Context // the context of the round trips
	end  context.CancelFunc
	left atomic.Int64 // the number of nodes that may still use ctx
}

func (q *masters) newPolling(ctx context.Context, p poll) *polling {
	o := &polling{of: q, poll: p, votes: make([][]vote, len(p.calls)), back: make(chan returned, len(q.nodes))}
	var unseen bool
	o.order, o.trusted, unseen = q.nodeOrder()
	switch {
	case p.first:
		o.order, o.trusted, o.wave = o.order[:1], 1, 1
	case p.everyone || o.trusted < q.majority: // every node may be needed
		o.wave = len(o.order)
	case unseen:
		o.wave = o.trusted
	default:
		o.wave = min(p.wave, o.trusted)
	}
	for i := range o.votes {
		o.votes[i] = make([]vote, len(q.nodes))
		for n := range o.votes[i] {
			o.votes[i][n].silent = true
		}
	}
	o.ctx, o.end = context.WithTimeout(context.WithoutCancel(ctx), q.env.timeout)
	o.left.Store(int64(len(o.order)))
	return o
}

// releaseContext counts nodes that no longer need the context, and cancels it when no node does.
func (o *polling) releaseContext(nodes int) {
	if o.left.Add(int64(-nodes)) <= 0 {
		o.end()
	}
}

// askFirstWave asks the first wave, and the untrusted nodes that are due for a probe.
func (o *polling) askFirstWave() {
	o.upTo(o.wave)
	now := o.of.env.clock()
	for _, n := range o.order[o.trusted:] {
		if o.of.nodes[n].probeDue(now) {
			o.askNode(n)
		}
	}
}

// upTo asks the first wave nodes of the order, except nodes that were asked before.
func (o *polling) upTo(wave int) {
	for _, n := range o.order[:wave] {
		o.askNode(n)
	}
}

// askNode asks a node, unless it was asked before.
func (o *polling) askNode(n int) {
	if o.votes[0][n].asked {
		return
	}
	o.asked++
	for i := range o.votes {
		o.votes[i][n].asked = true
	}
	o.of.workers.launch(func() {
		defer o.releaseContext(1)
		got := o.of.nodes[n].roundTrip(o.ctx, o.calls)
		if o.missed != nil && got[0].err != nil {
			o.missed(o.of.nodes[n])
		}
		o.back <- returned{n, got}
	})
}

// handleAnswer handles the answer of a node. It reports whether the poll is over.
func (o *polling) handleAnswer(r returned) (over bool) {
	o.received++
	for i := range o.votes {
		o.votes[i][r.node] = r.votes[i]
		o.votes[i][r.node].asked = true
	}
	if err := r.votes[0].err; err == nil || transport.IsReply(err) {
		o.replies++
	}
	all := o.received == len(o.order)
	if over := o.isEnough(all); over || all {
		return true
	}
	if o.received == o.asked || isRefused(r.votes) {
		o.upTo(o.trusted)
	}
	if o.received == o.asked {
		o.upTo(len(o.order))
	}
	return o.isEnough(false)
}

// isEnough reports whether the votes are enough. If a majority has answered, it does not wait for other nodes that are slow or not trusted. Otherwise
// each split vote would wait for the timeout of a node that hangs.
func (o *polling) isEnough(all bool) bool {
	late := o.late || all || o.trustedAnswered()
	if late && o.replies >= o.of.majority {
		for i := range o.votes {
			for n := range o.votes[i] {
				o.votes[i][n].absent = o.votes[i][n].silent
			}
		}
	}
	return o.sure(o.votes, late)
}

// trustedAnswered reports whether the trusted nodes are a majority, and all of them have answered or failed.
func (o *polling) trustedAnswered() bool {
	return o.trusted >= o.of.majority && !slices.ContainsFunc(o.order[:o.trusted], func(n int) bool { return o.votes[0][n].silent })
}

// askNodes polls the nodes. It returns when the outcome is certain, all nodes have answered, or ctx has ended. Calls under way continue in the
// background until Config.Timeout, and Close waits for them.
func (q *masters) askNodes(ctx context.Context, p poll) (votes [][]vote, sent time.Duration) {
	o := q.newPolling(ctx, p)
	defer func() { o.releaseContext(len(o.order) - o.asked) }()
	sent = q.env.clock()
	o.askFirstWave()
	slow := time.NewTimer(q.env.slowAfter(max(p.patience, 1)))
	defer slow.Stop()
	for {
		select {
		case r := <-o.back:
			if o.handleAnswer(r) {
				return o.votes, sent
			}
		case <-slow.C:
			o.upTo(len(o.order))
			if o.late = true; o.isEnough(false) {
				return o.votes, sent
			}
		case <-ctx.Done():
			return o.votes, sent
		}
	}
}
