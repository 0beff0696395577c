package quorum

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/redis"
)

// A poll sends the same calls to the nodes, in one or two waves.
type poll struct {
	calls []nodeCall
	wave  int // the number of trusted nodes in the first wave; other nodes follow if one of them fails, refuses or is slow
	// first asks only the first node.
	first bool
	// everyone asks all nodes in the first wave, even untrusted nodes: a node that is only slow may have a row to take back.
	everyone bool
	// patience multiplies the time after which a node counts as slow; 0 counts as 1.
	patience int
	// sure reports whether the votes, by call and node, are enough. late is true once the poll no longer waits for slow nodes.
	sure func(votes [][]vote, late bool) bool
	// missed is called for each node whose calls failed, even after the poll has ended.
	missed func(n *node)
}

// A returned is the answer of one node to all calls of a poll.
type returned struct {
	node  int
	votes []vote
}

// A polling is the state of a poll under way.
type polling struct {
	of *masters
	poll
	order    []int    // the indexes of the nodes to ask, trusted nodes first
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
	case p.everyone || o.trusted < q.majority: // without a majority of trusted nodes, every node may be needed
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

// upTo asks the first nodes of the order, as many as wave, except nodes that were asked before.
func (o *polling) upTo(wave int) {
	for _, n := range o.order[:wave] {
		o.askNode(n)
	}
}

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

func (o *polling) handleAnswer(r returned) (over bool) {
	o.received++
	for i := range o.votes {
		o.votes[i][r.node] = r.votes[i]
		o.votes[i][r.node].asked = true
	}
	if err := r.votes[0].err; err == nil || redis.IsReply(err) {
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

// isEnough reports whether the votes are enough. Once a majority has replied, nodes that are slow or untrusted count as absent. Otherwise each split
// vote would wait for the timeout of a node that hangs.
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

// A workers runs functions in goroutines that it reuses, because the stack of a new goroutine would have to grow each time.
type workers struct {
	work chan func()
	over chan struct{} // closed to end the idle goroutines
	once sync.Once

	mu         sync.Mutex // not a sync.WaitGroup, because calls begin during close, and a WaitGroup must not grow during Wait
	under      int        // the number of functions under way
	goroutines int        // the number of goroutines, including idle ones
	fewer      *sync.Cond // signals that under or goroutines became 0
}

// idleAfter is the time for which a goroutine without work is kept.
const idleAfter = time.Second

func newWorkers() *workers {
	c := &workers{work: make(chan func()), over: make(chan struct{})}
	c.fewer = sync.NewCond(&c.mu)
	return c
}

// launch runs f in the background. close waits for f. launch works even while the client closes, because the client then releases its leases.
func (c *workers) launch(f func()) {
	c.addCount(&c.under, 1)
	select {
	case c.work <- f:
	default:
		c.addCount(&c.goroutines, 1)
		go c.serve(f)
	}
}

func (c *workers) addCount(of *int, more int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *of += more; *of == 0 {
		c.fewer.Broadcast()
	}
}

func (c *workers) serve(f func()) {
	defer c.addCount(&c.goroutines, -1)
	idle := time.NewTimer(idleAfter)
	defer idle.Stop()
	for {
		c.runOne(f)
		idle.Reset(idleAfter)
		select {
		case f = <-c.work:
		case <-idle.C:
			return
		case <-c.over:
			return
		}
	}
}

func (c *workers) runOne(f func()) {
	defer c.addCount(&c.under, -1)
	f()
}

// close waits for the functions under way, and ends the idle goroutines. Round trips under way end with their timeout.
func (c *workers) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.under > 0 {
		c.fewer.Wait()
	}
	c.once.Do(func() { close(c.over) })
	for c.goroutines > 0 {
		c.fewer.Wait()
	}
}

// A task is one operation on one lock, which takes several rounds. The tasks of a batch share round trips.
type task interface {
	// lockName returns the name of the lock. Tasks on the same lock run one after the other, so that the older tick is granted first.
	lockName() string
	// toFirst reports whether the next call is only for the first node.
	toFirst() bool
	// nextCall returns the next call, and the number of nodes to ask at once.
	nextCall() (k nodeCall, wave int)
	// isSure reports whether the votes are enough for handleVotes. late is true once the poll no longer waits for slow nodes.
	isSure(votes []vote, late bool) bool
	// handleVotes handles the votes. If done is false, the task continues with nextCall after the pause.
	handleVotes(votes []vote, sent time.Duration) (pause time.Duration, done bool)
	// failWith ends the task with an error.
	failWith(err error)
}

// runTasks runs tasks until they are done. When ctx ends, the remaining tasks fail.
func (q *masters) runTasks(ctx context.Context, tasks []task) {
	ready := make([]time.Duration, len(tasks)) // the time of each task's next round; -1 when the task is done
	last := make([][]vote, len(tasks))         // the last votes of each task, for its error
	for {
		now := q.env.clock()
		batch, soonest := dueTasks(tasks, ready, now)
		switch {
		case len(batch) == 0 && soonest < 0:
			return
		case len(batch) == 0:
			backoff.Sleep(ctx, soonest-now)
		default:
			q.runRound(ctx, tasks, batch, ready, last)
		}
		if ctx.Err() == nil {
			continue
		}
		for i, at := range ready {
			switch {
			case at < 0:
			case last[i] != nil:
				tasks[i].failWith(q.errorOf(last[i]))
			default:
				tasks[i].failWith(redis.Unknown(context.Cause(ctx)))
			}
		}
		return
	}
}

// dueTasks returns a batch of tasks whose next round is due. soonest is the time of the earliest round that is not due yet, or -1 if there is none.
// Tasks that call only the first node come first, in a batch of their own.
func dueTasks(tasks []task, ready []time.Duration, now time.Duration) (batch []int, soonest time.Duration) {
	soonest = -1
	var first []int
	before := map[string]bool{} // locks with an earlier unfinished task
	for i, at := range ready {
		if at < 0 || before[tasks[i].lockName()] {
			continue
		}
		before[tasks[i].lockName()] = true
		switch {
		case at <= now && tasks[i].toFirst() && len(first) < lease.MaxBatch:
			first = append(first, i)
		case at <= now && len(batch) < lease.MaxBatch:
			batch = append(batch, i)
		case soonest < 0 || at < soonest:
			soonest = at
		}
	}
	if len(first) > 0 {
		return first, soonest
	}
	return batch, soonest
}

func (q *masters) runRound(ctx context.Context, tasks []task, batch []int, ready []time.Duration, last [][]vote) {
	p := poll{calls: make([]nodeCall, len(batch)), first: tasks[batch[0]].toFirst()}
	for n, i := range batch {
		var all int
		p.calls[n], all = tasks[i].nextCall()
		p.wave, p.patience = max(p.wave, all), max(p.patience, p.calls[n].patience)
	}
	p.sure = func(votes [][]vote, late bool) bool {
		for n, i := range batch {
			if !tasks[i].isSure(votes[n], late) {
				return false
			}
		}
		return true
	}
	votes, sent := q.askNodes(ctx, p)
	now := q.env.clock()
	for n, i := range batch {
		last[i] = votes[n]
		if q.refuseForGood(votes[n]) { // a repeated call would be refused as well
			tasks[i].failWith(fmt.Errorf("key %q: %w", p.calls[n].keys[1], q.errorOf(votes[n])))
			ready[i] = -1
			continue
		}
		pause, done := tasks[i].handleVotes(votes[n], sent)
		if ready[i] = now + pause; done {
			ready[i] = -1
		}
	}
}
