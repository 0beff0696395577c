package locking

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrQuorum is returned by what needs one server, where [Config.Quorum] names several.
var ErrQuorum = errors.New("not possible on a quorum")

var (
	//go:embed lua/quorum.lua
	luaQuorum string
	//go:embed lua/quorum_short.lua
	luaQuorumShort string
	//go:embed lua/quorum_claim.lua
	luaQuorumClaim string
	//go:embed lua/quorum_accept.lua
	luaQuorumAccept string
	//go:embed lua/quorum_renew.lua
	luaQuorumRenew string
	//go:embed lua/quorum_free.lua
	luaQuorumFree string
	//go:embed lua/quorum_release.lua
	luaQuorumRelease string
	//go:embed lua/quorum_enrol.lua
	luaQuorumEnrol string
	//go:embed lua/quorum_admit.lua
	luaQuorumAdmit string
)

type quorumScripts struct{ claim, accept, renew, release, enrol, admit *script }

// all are those that a node is taught when it is enrolled, and not before.
func (s quorumScripts) all() []*script {
	return []*script{s.claim, s.accept, s.renew, s.release, s.admit}
}

func loadQuorumScripts() quorumScripts {
	return quorumScripts{
		claim: newScript(luaQuorumShort, luaQuorum, luaQuorumClaim), accept: newScript(luaQuorum, luaQuorumAccept), renew: newScript(luaQuorum, luaQuorumRenew),
		release: newScript(luaQuorumFree, luaQuorumRelease), enrol: newScript(luaQuorumEnrol), admit: newScript(luaQuorumAdmit),
	}
}

// quorum merges the replies of independent masters: see docs/design.md, D13.
type quorum struct {
	*Client
	scripts  quorumScripts
	nodes    []*node
	majority int
	tender   *tender

	mu     sync.Mutex
	under  int // trips under way
	landed *sync.Cond

	lately atomic.Int64 // how long round trips take, in nanoseconds
}

func newQuorum(c *Client, clients []redis.UniversalClient) *quorum {
	q := &quorum{Client: c, scripts: loadQuorumScripts(), majority: len(clients)/2 + 1}
	for _, r := range clients {
		q.nodes = append(q.nodes, &node{client: c, redis: r})
	}
	q.tender, q.landed = newTender(q), sync.NewCond(&q.mu)
	return q
}

// checkQuorum tells what is wrong with the masters of a quorum.
func checkQuorum(cfg Config) error {
	switch n := len(cfg.Quorum); {
	case cfg.Redis != nil:
		return errors.New("locking: set one of Config.Redis and Config.Quorum, not both")
	case n < 3 || n%2 == 0:
		return fmt.Errorf("locking: Config.Quorum has %d masters: it must be an odd number, 3 at least", n)
	case cfg.AckedReplicas > 0:
		return errors.New("locking: Config.AckedReplicas is for Config.Redis; the masters of a quorum have no replicas that count")
	}
	for i, r := range cfg.Quorum {
		if _, cluster := r.(*redis.ClusterClient); cluster || r == nil {
			return fmt.Errorf("locking: Config.Quorum[%d] must be the client of one independent master", i)
		}
		if slices.Contains(cfg.Quorum[:i], r) {
			return fmt.Errorf("locking: Config.Quorum[%d] is there twice", i)
		}
		if !obeysContext(r) {
			return fmt.Errorf("locking: set ContextTimeoutEnabled in the options of Config.Quorum[%d]: without it a hung socket can outlast a lease", i)
		}
	}
	return nil
}

func (q *quorum) memberKey() string { return q.cfg.Prefix + "quorum" }
func (q *quorum) indexKey() string  { return q.cfg.Prefix + "quorum:locks" }

func (q *quorum) keys(lock, id string) []string {
	base := q.key(lock)
	return []string{q.memberKey(), base, base + ":dead:" + id}
}

// idleOf is for how long a lock is remembered, in microseconds; 0 for good.
func (q *quorum) idleOf(permanent bool) int64 {
	if permanent {
		return 0
	}
	return q.cfg.Idle.Microseconds()
}

// order is in which order the nodes are asked: one that the lock gives, so that its claimants meet early, with those last that do not answer.
func (q *quorum) order(lock string) []int {
	order := make([]int, len(q.nodes))
	first := spot(lock, len(q.nodes))
	now := q.cfg.Clock()
	last := len(order)
	next := 0
	for i := range q.nodes {
		n := (first + i) % len(q.nodes)
		if q.nodes[n].suspect(now) {
			last--
			order[last] = n
			continue
		}
		order[next] = n
		next++
	}
	return order
}

// spot is a number below n that all claimants of a lock agree on (FNV-1a).
func spot(lock string, n int) int {
	h := uint32(2166136261)
	for i := range len(lock) {
		h = (h ^ uint32(lock[i])) * 16777619
	}
	return int(h % uint32(n))
}

// healthy is how many nodes at the head of an order answer.
func (q *quorum) healthy(order []int) int {
	now := q.cfg.Clock()
	return max(q.majority, slices.IndexFunc(append(order, -1), func(n int) bool { return n < 0 || q.nodes[n].suspect(now) }))
}

// poll is one question to the nodes, in one or two waves.
type poll struct {
	calls []nodeCall
	order []int
	wave  int // how many are asked at once; the others when one fails, refuses or is slow
	// patience multiplies the time after which a node is slow; 0 is 1
	patience int
	// sure tells whether the votes are enough, by call and node. late: whoever has not answered by now is slow.
	sure func(votes [][]vote, late bool) bool
	// missed is called for a node whose answer was not heard, also after the poll.
	missed func(n *node)
}

// slowAfter is when the second wave goes out, and when a reply that would only make things clearer is waited for no longer: some
// round trips, as they were lately.
func (q *quorum) slowAfter(times int) time.Duration {
	const least, most, trips = 5 * time.Millisecond, 250 * time.Millisecond, 8
	lately := time.Duration(q.lately.Load())
	return time.Duration(times) * min(max(least, trips*lately), most)
}

// took takes in how long a round trip lasted.
func (q *quorum) took(d time.Duration) {
	old := q.lately.Load()
	q.lately.Store(old + (int64(d)-old)/8) // of two at once one may be lost
}

type returned struct {
	node  int
	votes []vote
}

// ask polls the nodes and returns as soon as the outcome is sure, all have answered, or ctx has ended. What is under way goes on in the background until
// Config.Timeout, and Close waits for it.
func (q *quorum) ask(ctx context.Context, p poll) (votes [][]vote, sent time.Duration) {
	votes = make([][]vote, len(p.calls))
	for i := range votes {
		votes[i] = make([]vote, len(q.nodes))
		for n := range votes[i] {
			votes[i][n].silent = true
		}
	}
	back := make(chan returned, len(q.nodes))
	trips, end := context.WithTimeout(context.WithoutCancel(ctx), q.cfg.Timeout)
	var left atomic.Int64 // nodes that may still use trips
	left.Store(int64(len(p.order)))
	done := func(n int) {
		if left.Add(int64(-n)) <= 0 {
			end()
		}
	}
	asked, heard, late := 0, 0, false
	wave := func(to int) {
		for ; asked < to; asked++ {
			n := p.order[asked]
			for i := range votes {
				votes[i][n].asked = true
			}
			q.launch(func() {
				got := q.nodes[n].trip(trips, p.calls)
				if p.missed != nil && got[0].err != nil {
					p.missed(q.nodes[n])
				}
				back <- returned{n, got}
				done(1)
			})
		}
	}
	defer func() { done(len(p.order) - asked) }()
	sent = q.cfg.Clock()
	wave(min(p.wave, len(p.order)))
	slow := time.NewTimer(q.slowAfter(max(p.patience, 1)))
	defer slow.Stop()
	for {
		select {
		case r := <-back:
			heard++
			for i := range votes {
				votes[i][r.node] = r.votes[i]
				votes[i][r.node].asked = true
			}
			if p.sure(votes, late || heard == len(p.order)) {
				return votes, sent
			}
			if asked < len(p.order) && (heard == asked || refused(r.votes)) {
				wave(len(p.order))
			}
			if heard == len(p.order) {
				return votes, sent
			}
		case <-slow.C:
			wave(len(p.order))
			if late = true; p.sure(votes, true) {
				return votes, sent
			}
		case <-ctx.Done():
			return votes, sent
		}
	}
}

// launch runs f in the background, also while the client closes, since a last release is made then; close waits for it.
func (q *quorum) launch(f func()) {
	q.mu.Lock()
	q.under++
	q.mu.Unlock()
	go func() {
		defer func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			if q.under--; q.under == 0 {
				q.landed.Broadcast()
			}
		}()
		f()
	}()
}

// close waits for the trips under way, each of which ends with its time-out.
func (q *quorum) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.under > 0 {
		q.landed.Wait()
	}
}

// refused tells whether a node has given less than was asked of it.
func refused(votes []vote) bool {
	return slices.ContainsFunc(votes, func(v vote) bool {
		return v.err != nil || !slices.Contains([]string{"yes", "accepted", "renewed", "released"}, v.word)
	})
}

// time is the middle one of the clocks of all nodes, as far as they have told it: of those that have voted, a minority could be more than half.
func (q *quorum) time(votes []vote) int64 {
	if micros, ok := q.estimate(q.cfg.Clock()); ok {
		return micros
	}
	return middle(votes)
}

// middle is the middle one of the clocks that votes tell.
func middle(votes []vote) int64 {
	var all []int64
	for _, v := range votes {
		if v.heard() && v.now > 0 {
			all = append(all, v.now)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.SortFunc(all, cmp.Compare)
	return all[(len(all)-1)/2]
}

// estimate is the middle one of the nodes' clocks at a local instant.
func (q *quorum) estimate(local time.Duration) (micros int64, known bool) {
	all := make([]int64, 0, len(q.nodes))
	for _, n := range q.nodes {
		if at, ok := n.clock.at(local); ok {
			all = append(all, at)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.SortFunc(all, cmp.Compare)
	return all[(len(all)-1)/2], true
}

// serverTime asks the nodes for their clocks, if none has told it yet.
func (q *quorum) serverTime(ctx context.Context) (time.Time, error) {
	if micros, ok := q.estimate(q.cfg.Clock()); ok {
		return fromMicros(micros), nil
	}
	k := nodeCall{script: q.scripts.claim, keys: q.keys("", "time"), id: "time",
		args: []any{-1, 0, 0, 0, "", 0, "", "", "", "1", "", 0, "1"}}
	votes, _ := q.ask(ctx, poll{calls: []nodeCall{k}, order: q.order(""), wave: len(q.nodes), sure: func(votes [][]vote, _ bool) bool {
		return count(votes[0], func(v vote) bool { return v.heard() }) >= q.majority
	}})
	micros, ok := q.estimate(q.cfg.Clock())
	if !ok {
		return time.Time{}, fmt.Errorf("read the servers' clocks: %w", errorOf(votes[0]))
	}
	return fromMicros(micros), nil
}

func count(votes []vote, is func(vote) bool) (n int) {
	for _, v := range votes {
		if is(v) {
			n++
		}
	}
	return n
}

func words(votes []vote, word ...string) int {
	return count(votes, func(v vote) bool { return v.heard() && slices.Contains(word, v.word) })
}

// errorOf tells why too few nodes have answered as they should.
func errorOf(votes []vote) error {
	var why []string
	for i, v := range votes {
		switch {
		case v.silent:
			why = append(why, fmt.Sprintf("node %d is silent", i+1))
		case v.err != nil:
			why = append(why, fmt.Sprintf("node %d: %v", i+1, v.err))
		default:
			why = append(why, fmt.Sprintf("node %d: %s", i+1, v.word))
		}
	}
	return fmt.Errorf("%w: no majority of the quorum (%s)", ErrUnknown, strings.Join(why, "; "))
}
