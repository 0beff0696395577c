// Package quorum keeps locks on an odd number of independent Redis masters. A majority of them must agree: see docs/decisions/013-quorum.md.
package quorum

import (
	"context"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/background"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/observed"
	"github.com/cronclave/cronclave/internal/lease/script"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// A Config is the configuration of a store on several masters.
type Config struct {
	Nodes   []transport.Client
	Prefix  string
	Owner   string
	Timeout time.Duration // the timeout of a round trip
	Idle    time.Duration // the time after which an unused lock expires
	Clock   func() time.Duration

	Work      *background.Group
	Observed  *observed.Cache             // the tokens that this store has proposed
	HeldToken func(id string) lease.Token // returns the token of the client's lease with this id; 0 if it holds none
	Contended func(lock, holder string)   // reports that a waiting caller's lock has another holder
}

// A Store executes the requests to a lock on several independent masters, and merges their replies.
type Store struct {
	cfg     Config
	scripts script.Quorum
	offers  offers
	*masters
}

func (q *Store) indexKey() string { return script.IndexKey(q.cfg.Prefix) }

func (q *Store) nodeKeys(lock, id string) []string {
	return script.NodeKeys(q.cfg.Prefix, script.Key(q.cfg.Prefix, lock), id)
}

// idleOf returns the time, in microseconds, after which an unused lock expires; 0 if it never expires.
func (q *Store) idleOf(permanent bool) int64 {
	if permanent {
		return 0
	}
	return q.cfg.Idle.Microseconds()
}

// ServerTime returns the estimate of the nodes' time. It asks the nodes only if too few clocks are known.
func (q *Store) ServerTime(ctx context.Context) (time.Time, error) {
	if micros, ok := q.Estimate(q.cfg.Clock()); ok {
		return clock.FromMicros(micros), nil
	}
	k := nodeCall{script: q.scripts.Claim, keys: q.nodeKeys("", "time"), id: "time",
		args: script.QuorumClaimArgs{Slot: script.NoSlot, Everyone: true, All: true}.Encode()}
	votes, _ := q.askNodes(ctx, poll{calls: []nodeCall{k}, wave: len(q.nodes), sure: func(votes [][]vote, _ bool) bool {
		return count(votes[0], func(v vote) bool { return v.hasAnswered() }) >= q.majority
	}})
	micros, ok := q.Estimate(q.cfg.Clock())
	if !ok {
		return time.Time{}, fmt.Errorf("read the servers' clocks: %w", q.errorOf(votes[0]))
	}
	return clock.FromMicros(micros), nil
}

// Close waits for round trips under way.
func (q *Store) Close() error {
	q.workers.close()
	return nil
}

// RoundTrips returns the number of round trips of a claim, which has two phases.
func (q *Store) RoundTrips() int { return 2 }
