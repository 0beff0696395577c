package quorum

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cronclave/cronclave/internal/lease/transport"
)

// poll is one question to the nodes, in one or two waves.
type poll struct {
	calls []nodeCall
	wave  int // how many are asked at once, of those that are trusted to answer; the others when one fails, refuses or is slow
	// first asks the first node alone.
	first bool
	// everyone is asked at once, also those that are not trusted to answer: their rows are to be taken back, and
	// they may be far only.
	everyone bool
	// patience multiplies the time after which a node is slow; 0 is 1
	patience int
	// sure reports whether the votes are enough, by call and node. late: no more are waited for, if a majority has
	// answered.
	sure func(votes [][]vote, late bool) bool
	// missed is called for a node whose answer was not heard, also after the poll.
	missed func(n *node)
}

// returned is what one node has answered.
type returned struct {
	node  int
	votes []vote
}

// polling is a poll under way.
type polling struct {
	of *masters
	poll
	order    []int    // those that are trusted first
	trusted  int      // how many these are
	votes    [][]vote // by call and node
	back     chan returned
	asked    int
	received int
	replies  int // of these; the others have failed
	late     bool

	ctx  context.Context // of the trips
	end  context.CancelFunc
	left atomic.Int64 // nodes that may still use ctx
}

func (q *masters) newPolling(ctx context.Context, p poll) *polling {
	o := &polling{of: q, poll: p, votes: make([][]vote, len(p.calls)), back: make(chan returned, len(q.nodes))}
	var unseen bool
	o.order, o.trusted, unseen = q.order()
	switch {
	case p.first:
		o.order, o.trusted, o.wave = o.order[:1], 1, 1
	case p.everyone || o.trusted < q.majority: // each may be needed
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

// done releases the context for some nodes, which need it no more.
func (o *polling) done(nodes int) {
	if o.left.Add(int64(-nodes)) <= 0 {
		o.end()
	}
}

// begin asks the first wave, and those that are to show whether they answer again.
func (o *polling) begin() {
	o.upTo(o.wave)
	now := o.of.env.clock()
	for _, n := range o.order[o.trusted:] {
		if o.of.nodes[n].probe(now) {
			o.send(n)
		}
	}
}

// upTo asks nodes of the order, so that so many have been.
func (o *polling) upTo(wave int) {
	for _, n := range o.order[:wave] {
		o.send(n)
	}
}

// send asks a node, unless it was asked before.
func (o *polling) send(n int) {
	if o.votes[0][n].asked {
		return
	}
	o.asked++
	for i := range o.votes {
		o.votes[i][n].asked = true
	}
	o.of.workers.launch(func() {
		defer o.done(1)
		got := o.of.nodes[n].trip(o.ctx, o.calls)
		if o.missed != nil && got[0].err != nil {
			o.missed(o.of.nodes[n])
		}
		o.back <- returned{n, got}
	})
}

// receive takes in a node's answer. It reports whether that was enough.
func (o *polling) receive(r returned) (over bool) {
	o.received++
	for i := range o.votes {
		o.votes[i][r.node] = r.votes[i]
		o.votes[i][r.node].asked = true
	}
	if err := r.votes[0].err; err == nil || transport.IsReply(err) {
		o.replies++
	}
	all := o.received == len(o.order)
	if over := o.enough(all); over || all {
		return true
	}
	if o.received == o.asked || refused(r.votes) {
		o.upTo(o.trusted)
	}
	if o.received == o.asked {
		o.upTo(len(o.order))
	}
	return o.enough(false)
}

// enough reports whether the votes are enough. When a majority has answered, and all others are late or not
// trusted to answer, those are not waited for: a node that hangs would cost each vote that is split its
// time-out, and hold up all other requests meanwhile.
func (o *polling) enough(all bool) bool {
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

// trustedAnswered reports whether all nodes that are trusted to answer have answered or failed, if those are a
// majority.
func (o *polling) trustedAnswered() bool {
	return o.trusted >= o.of.majority && !slices.ContainsFunc(o.order[:o.trusted], func(n int) bool { return o.votes[0][n].silent })
}

// ask polls the nodes and returns as soon as the outcome is sure, all have answered, or ctx has ended. Calls
// under way go on in the background until Config.Timeout, and Close waits for them.
func (q *masters) ask(ctx context.Context, p poll) (votes [][]vote, sent time.Duration) {
	o := q.newPolling(ctx, p)
	defer func() { o.done(len(o.order) - o.asked) }()
	sent = q.env.clock()
	o.begin()
	slow := time.NewTimer(q.env.slowAfter(max(p.patience, 1)))
	defer slow.Stop()
	for {
		select {
		case r := <-o.back:
			if o.receive(r) {
				return o.votes, sent
			}
		case <-slow.C:
			o.upTo(len(o.order))
			if o.late = true; o.enough(false) {
				return o.votes, sent
			}
		case <-ctx.Done():
			return o.votes, sent
		}
	}
}
