package quorum

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/redis"
)

// A vote is a node's reply to one call.
type vote struct {
	word  string
	now   int64 // the node's clock
	floor int64
	redis.Values
	err    error // the error of the call, which the node may still have executed
	silent bool  // no answer has come yet
	absent bool  // silent, and the poll no longer waits for the node
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
	v := vote{word: redis.Text(raw[0]), now: redis.Number(raw[1]), floor: redis.Number(raw[2]), Values: raw[3:]}
	if !lease.Sound(v.now, lease.MaxNumber) || !lease.Sound(v.floor, lease.MaxNumber) {
		return vote{err: fmt.Errorf("%w: %w: a reply from the server with time %d and floor %d", lease.ErrUnknown, lease.ErrCorrupt, v.now, v.floor)}
	}
	return v
}

func allFailed(calls int, err error) []vote {
	votes := make([]vote, calls)
	for i := range votes {
		votes[i].err = redis.Unknown(err)
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

// isRefused reports whether a node has failed or refused any of its calls.
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

func floorOf(votes []vote) (floor int64) {
	for _, v := range votes {
		if v.hasAnswered() {
			floor = max(floor, v.floor)
		}
	}
	return floor
}

// silentNodes returns the number of nodes for whose answer the poll still waits.
func silentNodes(votes []vote) int {
	return count(votes, func(v vote) bool { return v.silent && !v.absent })
}

// masters are the nodes of a quorum.
type masters struct {
	env      *env
	nodes    []*node
	majority int
	workers  *workers // runs the round trips
}

func newMasters(e *env, clients []redis.Client) *masters {
	q := &masters{env: e, majority: len(clients)/2 + 1, workers: newWorkers()}
	for _, r := range clients {
		q.nodes = append(q.nodes, &node{env: e, redis: r.(*goredis.Client)})
	}
	return q
}

// nodeOrder returns the order in which the nodes are asked: first the nodes that are trusted to answer, then the others, each group in the order of
// the configuration. healthy is the number of trusted nodes. unseen reports whether a trusted node has not answered for long. Clients with the same
// configuration ask the same node first, so that concurrent claims conflict on that node. The order is the same for all locks, so that usually the
// same majority gets all calls: a node that is called only now and then answers slowly.
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

// Estimate returns a lower bound of the median of all nodes' clocks at a local instant. Once all clocks are known, this bound is the median itself.
// known is false until the clocks of a majority are known.
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

// clockBounds returns a lower and an upper bound for the median of all nodes' clocks, whatever the unknown clocks show. The median of the known
// clocks alone could be wrong: if only three of five clocks are known, two of these three may be wrong.
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

// refuseForGood reports whether so many nodes refuse the request with [lease.ErrRefused] that no majority is left for it.
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
