package quorum

import (
	"context"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/redis"
	"github.com/cronclave/cronclave/internal/lease/rules"
)

// A rejoiner lets nodes that have lost their data vote again, and starts a new quorum. It runs when a reply shows that a node does not vote.
type rejoiner struct {
	store *Store
	wake  chan struct{} // capacity 1, so that a wake-up during a check is not lost
}

// wakeUp makes the rejoiner check the nodes.
func (t *rejoiner) wakeUp() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

const (
	// rejoinPause is the pause between two checks of nodes that do not vote yet.
	rejoinPause = 100 * time.Millisecond
	// longestRejoinPause bounds the pause between two checks if the nodes can't be admitted yet.
	longestRejoinPause = 5 * time.Second
)

// runLoop is the rejoiner's goroutine. It ends with the client.
func (t *rejoiner) runLoop() {
	for retry := backoff.New(rejoinPause, longestRejoinPause); ; {
		select {
		case <-t.store.cfg.Work.Life().Done():
			return
		case <-t.wake:
		}
		t.sendMissed()
		left, helped := t.helpNodes()
		if helped {
			retry.Reset()
		}
		if left == 0 {
			continue
		}
		backoff.Sleep(t.store.cfg.Work.Life(), min(left, retry.Next()))
		t.wakeUp()
	}
}

// sendMissed sends the missed calls to nodes that answer again.
func (q *rejoiner) sendMissed() {
	now := q.store.cfg.Clock()
	for _, n := range q.store.nodes {
		if n.isSuspect(now) {
			continue
		}
		for some := range slices.Chunk(n.takeMissed(now), lease.MaxBatch) {
			calls := make([]nodeCall, len(some))
			for i, o := range some {
				calls[i] = o.call
			}
			ctx, cancel := context.WithTimeout(q.store.cfg.Work.Life(), q.store.cfg.Timeout)
			for i, v := range n.roundTrip(ctx, calls) {
				if v.err != nil {
					n.keepMissed(some[i].call, some[i].until)
				}
			}
			cancel()
		}
	}
}

// enrolAll enrols all nodes and returns their markers, nil for nodes that do not answer.
func (q *rejoiner) enrolAll() []*membership {
	ctx, cancel := context.WithTimeout(q.store.cfg.Work.Life(), q.store.cfg.Timeout)
	defer cancel()
	type found struct {
		node int
		m    membership
		err  error
	}
	back := make(chan found, len(q.store.nodes))
	for i, n := range q.store.nodes {
		q.store.workers.launch(func() {
			m, err := n.ensureEnrolled(ctx)
			back <- found{i, m, err}
		})
	}
	members := make([]*membership, len(q.store.nodes))
	for range q.store.nodes {
		if f := <-back; f.err == nil {
			members[f.node] = &f.m
		}
	}
	return members
}

// helpNodes admits the nodes that do not vote, if possible now. left is the time until the next check, or 0 if no further check is needed. helped is
// true if at least one node was admitted.
func (t *rejoiner) helpNodes() (left time.Duration, helped bool) {
	members := t.enrolAll()
	var voters, joining []int
	answered := 0
	for i, m := range members {
		switch {
		case m == nil:
			continue
		case m.state == votingState:
			voters = append(voters, i)
		default:
			joining = append(joining, i)
		}
		answered++
	}
	switch {
	case len(joining) == 0:
		return 0, false
	case len(voters) >= t.store.majority:
		return t.admitNodes(members, voters, joining, false)
	case answered == len(t.store.nodes): // the quorum is new, or a majority has lost its data: all remaining state is in the answers
		return t.admitNodes(members, slices.Concat(voters, joining), joining, true)
	case answered >= t.store.majority:
		return t.beginQuorum(members)
	}
	return longestRejoinPause, false
}

// admitNodes copies the registers (states of locks) from sources to the joining nodes that have waited long enough, and lets these vote. everyone: sources has all nodes.
func (q *rejoiner) admitNodes(members []*membership, sources, joining []int, everyone bool) (left time.Duration, helped bool) {
	base, longest := int64(0), int64(0)
	for _, i := range sources {
		base, longest = max(base, members[i].top, members[i].base), max(longest, members[i].longest)
	}
	least := longest
	if !everyone { // a claim under way may still count a vote that the joining node has lost
		least = max(longest, q.underWay())
	}
	ready := slices.DeleteFunc(slices.Clone(joining), func(i int) bool {
		wait := time.Duration(members[i].sinceAt+least-members[i].now) * time.Microsecond
		if wait > 0 {
			left = max(left, wait)
		}
		return wait > 0
	})
	if len(ready) == 0 {
		return left, false
	}
	if everyone && len(ready) < len(joining) {
		return left, false
	}
	if !q.reseedRegisters(sources, ready, everyone) {
		return rejoinPause, false
	}
	for _, i := range ready {
		if q.letVote(q.store.nodes[i], members[i].epoch, base, longest) {
			helped = true
		} else {
			left = max(left, rejoinPause)
		}
	}
	return left, helped
}

// underWay returns the maximum time, in microseconds, between the arrivals of one request at two nodes.
func (q *rejoiner) underWay() int64 { return (q.store.cfg.Timeout + time.Second).Microseconds() }

func (q *rejoiner) letVote(n *node, epoch string, base, longest int64) bool {
	ctx, cancel := context.WithTimeout(q.store.cfg.Work.Life(), q.store.cfg.Timeout)
	defer cancel()
	got, err := n.redis.EvalSha(ctx, q.store.scripts.Admit.SHA, []string{q.store.env.memberKey},
		redis.NodeAdmit(epoch, base, longest)...).Slice()
	return err == nil && len(got) > 0 && redis.Text(got[0]) == votingState
}

// reseedRegisters reads each register from a majority, and writes it again until the nodes in ready have accepted it. It returns false if that fails.
func (q *rejoiner) reseedRegisters(sources, ready []int, everyone bool) bool {
	locks, ok := q.indexedLocks(sources)
	if !ok {
		return false
	}
	for some := range slices.Chunk(locks, lease.MaxBatch/10) {
		tasks := make([]task, len(some))
		for i, key := range some {
			tasks[i] = &seeding{change: change{store: q.store, lock: key, key: key, everyone: everyone, edit: func(*rules.Register, rules.View) {}}, ready: ready}
		}
		ctx, cancel := context.WithTimeout(q.store.cfg.Work.Life(), 4*q.store.cfg.Timeout)
		q.store.runTasks(ctx, tasks)
		cancel()
		if slices.ContainsFunc(tasks, func(t task) bool { return t.(*seeding).failed != nil }) {
			return false
		}
	}
	return true
}

// indexedLocks returns the keys of all locks that have a register on one of the sources.
func (q *rejoiner) indexedLocks(sources []int) (locks []string, ok bool) {
	ctx, cancel := context.WithTimeout(q.store.cfg.Work.Life(), q.store.cfg.Timeout)
	defer cancel()
	for _, i := range sources {
		some := goredis.NewStringSliceCmd(ctx, "smembers", q.store.indexKey())
		if err := redis.Process(ctx, q.store.nodes[i].redis, some); err != nil {
			return nil, false
		}
		locks = append(locks, some.Val()...)
	}
	slices.Sort(locks)
	return slices.Compact(locks), true
}

// A seeding copies a register to joining nodes. It is a change with an empty edit, which succeeds only if the nodes in ready accept the register.
type seeding struct {
	change
	ready []int
}

func (t *seeding) isSure(votes []vote, late bool) bool {
	if t.phase != "accept" {
		return t.change.isSure(votes, late)
	}
	return silentNodes(votes) == 0
}

func (t *seeding) handleVotes(votes []vote, sent time.Duration) (time.Duration, bool) {
	for _, v := range votes { // the lock is permanent if any node has it as permanent
		t.permanent = t.permanent || v.hasAnswered() && t.phase != "accept" && v.asClaim().permanent
	}
	if t.phase == "accept" {
		for _, n := range t.ready {
			if v := votes[n]; !v.hasAnswered() || v.word != "accepted" && v.word != "joining" {
				return t.prepareAgain()
			}
		}
	}
	return t.change.handleVotes(votes, sent)
}

// QuietBefore is the time without any request after which masters may begin a new quorum although other masters do not answer. Each holder renews its
// lease within this time (see [Store.RenewAfter]). A master that has lost its data therefore receives a renewal, and is not taken for a new master.
const QuietBefore = 30 * time.Second

// beginQuorum starts a new quorum while a minority of its nodes does not answer. The nodes that answer must be a majority, and all of them must be
// new: they have received no request since they got their markers, more than [QuietBefore] ago. beginQuorum marks these nodes as founders, and lets
// them vote once a majority are founders. If this client dies, any other client can continue these steps. A founder that loses its data is no longer
// a founder.
//
// A new node has never voted, so it may start to vote at any time. A node that has lost its data may have voted, and must not be taken for a new
// node. If a majority of the nodes has lost its data, the locks are lost in any case. See docs/decisions/018-quorum-membership.md.
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
	case founders >= q.store.majority:
		return q.foundersVote(members)
	case others > 0 || hasVoter(members):
		return longestRejoinPause, false
	}
	left = rejoinPause
	for i, m := range members {
		if m != nil && !m.founder {
			left = max(left, q.markFounder(q.store.nodes[i], m.epoch))
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
		case q.letVote(q.store.nodes[i], m.epoch, 0, 0):
			helped = true
		default:
			left = rejoinPause
		}
	}
	if left == 0 && !helped { // the nodes left are not founders, and wait until a majority votes
		left = longestRejoinPause
	}
	return left, helped
}

// markFounder marks a node as a founder. It returns the time until the next try, or 0 if the node is marked.
func (q *rejoiner) markFounder(n *node, epoch string) (left time.Duration) {
	ctx, cancel := context.WithTimeout(q.store.cfg.Work.Life(), q.store.cfg.Timeout)
	defer cancel()
	quiet := QuietBefore.Microseconds() + q.underWay()
	got, err := n.redis.EvalSha(ctx, q.store.scripts.Found.SHA, []string{q.store.env.memberKey}, redis.NodeFound(epoch, quiet)...).Slice()
	switch {
	case err != nil || len(got) < 2:
		return rejoinPause
	case redis.Text(got[0]) == "wait":
		return time.Duration(redis.Number(got[1])) * time.Microsecond
	}
	return 0
}
