package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/observed"
	"github.com/cronclave/cronclave/internal/lease/script"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// quorum merges the replies of independent masters: see docs/decisions/013-quorum.md.
type quorum struct {
	*Client
	scripts  script.Quorum
	seen     *observed.Cache // the tokens that it has proposed
	offers   offers
	nodes    []*node
	majority int
	rejoiner *rejoiner

	workers *workers // makes the trips

	lately atomic.Int64 // how long round trips take, in nanoseconds
}

func newQuorum(c *Client, clients []redis.UniversalClient) *quorum {
	q := &quorum{Client: c, scripts: script.ForQuorum(), seen: observed.New(), majority: len(clients)/2 + 1}
	for _, r := range clients {
		q.nodes = append(q.nodes, &node{q: q, redis: r.(*redis.Client)})
	}
	q.rejoiner, q.workers = newRejoiner(q), newWorkers()
	return q
}

// checkQuorum returns an error if the masters of a quorum can't be used.
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
		if one, ok := r.(*redis.Client); !ok || one == nil {
			return fmt.Errorf("locking: Config.Quorum[%d] must be the client of one independent master", i)
		}
		if slices.Contains(cfg.Quorum[:i], r) {
			return fmt.Errorf("locking: Config.Quorum[%d] is there twice", i)
		}
		if !transport.ObeysContext(r) {
			return fmt.Errorf("locking: set ContextTimeoutEnabled in the options of Config.Quorum[%d]: without it a hung socket can outlast a lease", i)
		}
	}
	return nil
}

func (q *quorum) memberKey() string { return script.MemberKey(q.cfg.Prefix) }
func (q *quorum) indexKey() string  { return script.IndexKey(q.cfg.Prefix) }

func (q *quorum) keys(lock, id string) []string {
	return script.NodeKeys(q.cfg.Prefix, q.key(lock), id)
}

// idleOf is for how long a lock is remembered, in microseconds; 0 for good.
func (q *quorum) idleOf(permanent bool) int64 {
	if permanent {
		return 0
	}
	return q.cfg.Idle.Microseconds()
}

// order is in which order the nodes are asked: as they are listed, so that claimants meet early, and with those last that do not answer; how
// many of them do, and whether nothing has been heard of one of those for long. In one order for all locks, so that some servers are not needed for most: one
// that is asked now and then is cold, and slow.
func (q *quorum) order() (order []int, healthy int, unheard bool) {
	order = make([]int, 0, len(q.nodes))
	var last []int
	now := q.cfg.Clock()
	for i, n := range q.nodes {
		if n.suspect(now) {
			last = append(last, i)
			continue
		}
		order = append(order, i)
		unheard = unheard || n.unheard(now)
	}
	return append(order, last...), len(order), unheard
}

// estimate is the middle one of all nodes' clocks at a local instant, or a value not after it where some clocks
// are not known yet. Nothing is known before a majority's clocks are.
func (q *quorum) estimate(local time.Duration) (micros int64, known bool) {
	micros, _, known = q.bounds(local)
	return micros, known
}

// margin is how far the estimate may be off at a local instant.
func (q *quorum) margin(local time.Duration) (most time.Duration) {
	low, high, known := q.bounds(local)
	if !known {
		return 0
	}
	for _, n := range q.nodes {
		most = max(most, n.clock.Margin(local))
	}
	return most + time.Duration(high-low)*time.Microsecond
}

// bounds are what the middle one of all nodes' clocks lies between, whatever those show that this client has not heard of: of those that it has, a
// minority of wrong ones could be most.
func (q *quorum) bounds(local time.Duration) (low, high int64, known bool) {
	all := make([]int64, 0, len(q.nodes))
	for _, n := range q.nodes {
		if at, ok := n.clock.At(local); ok {
			all = append(all, at)
		}
	}
	if len(all) < q.majority {
		return 0, math.MaxInt64, false
	}
	slices.Sort(all)
	return all[len(all)-q.majority], all[q.majority-1], true
}

// serverTime asks the nodes for their clocks, if none has told it yet.
func (q *quorum) serverTime(ctx context.Context) (time.Time, error) {
	if micros, ok := q.estimate(q.cfg.Clock()); ok {
		return clock.FromMicros(micros), nil
	}
	k := nodeCall{script: q.scripts.Claim, keys: q.keys("", "time"), id: "time",
		args: script.QuorumClaimArgs{Slot: script.NoSlot, Everyone: true, All: true}.Encode()}
	votes, _ := q.ask(ctx, poll{calls: []nodeCall{k}, wave: len(q.nodes), sure: func(votes [][]vote, _ bool) bool {
		return count(votes[0], func(v vote) bool { return v.heard() }) >= q.majority
	}})
	micros, ok := q.estimate(q.cfg.Clock())
	if !ok {
		return time.Time{}, fmt.Errorf("read the servers' clocks: %w", q.errorOf(votes[0]))
	}
	return clock.FromMicros(micros), nil
}

func count[T any](all []T, is func(T) bool) (n int) {
	for _, v := range all {
		if is(v) {
			n++
		}
	}
	return n
}

func words(votes []vote, word ...string) int {
	return count(votes, func(v vote) bool { return v.heard() && slices.Contains(word, v.word) })
}

// refuse reports whether so many nodes refuse the request for good, from any client, that no majority is left.
func (q *quorum) refuse(votes []vote) bool {
	return count(votes, func(v vote) bool { return errors.Is(v.err, ErrRefused) }) > len(q.nodes)-q.majority
}

// errorOf returns the reason why too few nodes have answered as they should. It names those that
// have failed.
func (q *quorum) errorOf(votes []vote) error {
	var why []string
	now := q.cfg.Clock()
	for i, v := range votes {
		addr := q.nodes[i].redis.Options().Addr
		switch {
		case v.silent && q.nodes[i].suspect(now): // else its reply is on its way
			why = append(why, addr+" is silent")
		case v.err != nil:
			why = append(why, fmt.Sprintf("%s: %s", addr, strings.TrimPrefix(v.err.Error(), ErrUnknown.Error()+": ")))
		case v.strange():
			why = append(why, addr+" does not vote yet")
		case v.heard() && v.word == "late":
			why = append(why, addr+" was reached too late")
		}
	}
	switch {
	case len(why) == 0:
		return fmt.Errorf("%w: votes of the quorum are split", ErrUnknown)
	case q.refuse(votes):
		return fmt.Errorf("%w: no majority of the quorum: %w", ErrUnknown, lease.Refused(errors.New(strings.Join(why, "; "))))
	}
	return fmt.Errorf("%w: no majority of the quorum (%s)", ErrUnknown, strings.Join(why, "; "))
}

func (q *quorum) close() error {
	q.workers.close()
	return nil
}

// roundTrips: a claim has two phases.
func (q *quorum) roundTrips() time.Duration { return 2 }

// renewAfter is a third of the time left, so that two attempts may fail; and 30 s at most, because masters that
// lost their data must see a renewal before they begin anew: see [quietBefore].
func (q *quorum) renewAfter(left time.Duration) time.Duration { return min(left/3, quietBefore) }

// publish does nothing: replicas that ask a quorum find out by asking.
func (q *quorum) publish(context.Context, []*Lease, []*Lease) error { return nil }

func (q *quorum) hear(ctx context.Context, _ func([]GrantEvent)) { <-ctx.Done() }

func (q *quorum) releaseSoon(ctx context.Context, r releaseCall, begun time.Duration) (string, error) {
	return q.releaseUntil(ctx, r, begun)
}
