package quorum

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// masters has the nodes of a quorum.
type masters struct {
	env      *env
	nodes    []*node
	majority int
	workers  *workers // run the round trips
}

func newMasters(e *env, clients []transport.Client) *masters {
	q := &masters{env: e, majority: len(clients)/2 + 1, workers: newWorkers()}
	for _, r := range clients {
		q.nodes = append(q.nodes, &node{env: e, redis: r.(*redis.Client)})
	}
	return q
}

// nodeOrder returns the order in which the nodes are asked, the number of nodes that are trusted to answer, and whether one of these has not answered
// for long. Trusted nodes come first. Otherwise the order is the configured one, so that concurrent claims conflict on the first node. It is the same
// for all locks, so that the last nodes are rarely needed: nodes that are asked now and then are cold, and slow.
func (q *masters) nodeOrder() (order []int, healthy int, unseen bool) {
	order = make([]int, 0, len(q.nodes))
	var last []int
	now := q.env.clock()
	for i, n := range q.nodes {
		if n.isSuspect(now) {
			last = append(last, i)
			continue
		}
		order = append(order, i)
		unseen = unseen || n.isUnseen(now)
	}
	return append(order, last...), len(order), unseen
}

// Estimate returns a lower bound of the median of all nodes' clocks at a local instant. It is the median itself once all clocks are known. known is
// false until the clocks of a majority are known.
func (q *masters) Estimate(local time.Duration) (micros int64, known bool) {
	micros, _, known = q.clockBounds(local)
	return micros, known
}

// Margin returns the maximum error of the estimate at a local instant.
func (q *masters) Margin(local time.Duration) (most time.Duration) {
	low, high, known := q.clockBounds(local)
	if !known {
		return 0
	}
	for _, n := range q.nodes {
		most = max(most, n.clock.Margin(local))
	}
	return most + time.Duration(high-low)*time.Microsecond
}

// clockBounds returns bounds for the median of all nodes' clocks. The bounds hold for any values of the clocks that are not known yet, because a
// minority of wrong clocks could be most of the known clocks.
func (q *masters) clockBounds(local time.Duration) (low, high int64, known bool) {
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

// refuseForGood reports whether so many nodes refuse the request with [lease.ErrRefused] that no majority is left.
func (q *masters) refuseForGood(votes []vote) bool {
	return count(votes, func(v vote) bool { return errors.Is(v.err, lease.ErrRefused) }) > len(q.nodes)-q.majority
}

// errorOf returns an error that lists the nodes that failed and their errors.
func (q *masters) errorOf(votes []vote) error {
	var why []string
	now := q.env.clock()
	for i, v := range votes {
		addr := q.nodes[i].redis.Options().Addr
		switch {
		case v.silent && q.nodes[i].isSuspect(now): // any other silent node may still reply
			why = append(why, addr+" is silent")
		case v.err != nil:
			why = append(why, fmt.Sprintf("%s: %s", addr, strings.TrimPrefix(v.err.Error(), lease.ErrUnknown.Error()+": ")))
		case v.cannotVote():
			why = append(why, addr+" does not vote yet")
		case v.hasAnswered() && v.word == "late":
			why = append(why, addr+" was reached too late")
		}
	}
	switch {
	case len(why) == 0:
		return fmt.Errorf("%w: votes of the quorum are split", lease.ErrUnknown)
	case q.refuseForGood(votes):
		return fmt.Errorf("%w: no majority of the quorum: %w", lease.ErrUnknown, lease.Refused(errors.New(strings.Join(why, "; "))))
	}
	return fmt.Errorf("%w: no majority of the quorum (%s)", lease.ErrUnknown, strings.Join(why, "; "))
}
