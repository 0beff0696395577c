package quorum

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/redis"
	"github.com/cronclave/cronclave/internal/lease/rules"
)

// Release gives the row of a lease back on all nodes that may have it. If the request is [lease.Request.Accounted], Release first removes the run
// from the register. It returns when a majority has answered. Calls to the other nodes continue in the background.
func (q *Store) Release(ctx context.Context, r lease.ReleaseRequest) (answer lease.Released, err error) {
	row := &r.Row.Request
	if row.Accounted() {
		return q.endRun(ctx, r)
	}
	few := r.Fresh && isNarrow(r.Row)
	k := q.releaseOf(row.Lock, row.ID, r.Row.Grant.Slot, 0, few)
	end := q.cfg.Clock() + row.Lease
	_, trusted, _ := q.nodeOrder()
	everyone := !few || trusted < len(q.nodes) // if a node is untrusted, ask all nodes, because that node may have voted for the lease
	p := poll{calls: []nodeCall{k}, wave: q.majority, everyone: everyone, patience: 10, missed: func(n *node) { n.keepMissed(k, end) }}
	p.sure = func(votes [][]vote, late bool) bool {
		released, gone := countWords(votes[0], "released"), countWords(votes[0], "gone")
		return released >= q.majority || gone > len(q.nodes)-q.majority || late && released+gone >= q.majority
	}
	for tries := 1; ; tries++ {
		votes, _ := q.askNodes(ctx, p)
		released, gone := countWords(votes[0], "released"), countWords(votes[0], "gone")
		switch {
		case released+gone < q.majority:
			err = q.errorOf(votes[0])
			r.Doubt = r.Doubt || few && r.Held // no tombstone proves this release, so the next try may find the row gone
			if q.refuseForGood(votes[0]) {
				return "", err
			}
		case gone > len(q.nodes)-q.majority:
			return r.Sure(lease.ReleasedGone), nil
		default:
			return lease.ReleasedNow, nil
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("%w (%w)", err, ctx.Err())
		}
		backoff.Sleep(ctx, randomPause(tries))
	}
}

// ReleaseSoon is [Store.Release] for at most two timeouts, counted from the instant begun.
func (q *Store) ReleaseSoon(ctx context.Context, r lease.ReleaseRequest, begun time.Duration) (lease.Released, error) {
	ctx, cancel := context.WithTimeout(ctx, begun+2*q.cfg.Timeout-q.cfg.Clock())
	defer cancel()
	answer, err := q.Release(ctx, r)
	return r.Sure(answer), err
}

// endRun ends a run in the register (the state of the lock), or makes it an orphan, and releases its row on all nodes, even without a majority.
func (q *Store) endRun(ctx context.Context, r lease.ReleaseRequest) (lease.Released, error) {
	row := &r.Row.Request
	t := &change{store: q, lock: row.Lock, permanent: row.Permanent, id: row.ID, ends: true}
	known := false
	t.edit = func(g *rules.Register, v rules.View) {
		run, running := g.Runs[row.ID]
		if !running {
			run = g.Orphans[row.ID]
		}
		known = known || run.Attempt > 0
		if r.Mode == lease.ReleaseHandOver {
			g.HandOver(row.ID, r.Attempt)
			return
		}
		if ended := g.End(row, r.Mode == lease.ReleaseUndo); ended && r.Outcome != "" {
			g.RecordOutcome(run.Tick, r.Outcome == lease.OutcomeSucceeded, row.PerTick(), v.Now)
		}
	}
	q.runTasks(ctx, []task{t})
	q.releaseEverywhere(q.releaseOf(row.Lock, row.ID, lease.UnknownSlot, 0, false), row.Lease) // also on nodes that did not accept the register
	switch {
	case t.failed != nil:
		return "", t.failed
	case !known || t.rows == 0:
		return lease.ReleasedGone, nil
	}
	return lease.ReleasedNow, nil
}

// dropVotes takes back the votes for a lease id up to a token, on all nodes and in the background.
func (q *Store) dropVotes(lock, id string, token int64, lease time.Duration) {
	q.releaseEverywhere(q.releaseOf(lock, id, -1, token, false), lease)
}

// releaseOf returns the call that takes back the votes for a lease id up to a token. With token 0 it releases the lease id for good.
func (q *Store) releaseOf(lock, id string, slot int, token int64, narrow bool) nodeCall {
	return nodeCall{script: q.scripts.Release, keys: q.nodeKeys(lock, id), id: id,
		args: redis.NodeRelease(slot, token, redis.TombstoneLife(q.cfg.Timeout), narrow)}
}

// releaseEverywhere sends a call to all nodes in the background. A node that does not answer gets the call when it answers again, unless the lease
// has expired by then.
func (q *Store) releaseEverywhere(k nodeCall, lease time.Duration) {
	end := q.cfg.Clock() + lease
	q.workers.launch(func() {
		_, _ = q.askNodes(q.cfg.Work.Life(), poll{calls: []nodeCall{k}, everyone: true,
			sure:   func([][]vote, bool) bool { return false },
			missed: func(n *node) { n.keepMissed(k, end) }})
	})
}

// SpreadAfter is the time from a grant to the first renewal, which writes the lease to all nodes instead of a majority. If some nodes do not answer,
// the next renewals follow after pauses that double, up to [Store.RenewAfter].
const SpreadAfter = 50 * time.Millisecond

// A ticket is the state that the store keeps for a lease: see [lease.Ticket].
type ticket struct {
	narrow bool         // no more than a majority was asked for the row
	repair atomic.Int64 // a time.Duration: the pause before the next renewal if some nodes may not have the lease
}

func newTicket(narrow bool) *ticket {
	t := &ticket{narrow: narrow}
	t.repair.Store(int64(2 * SpreadAfter))
	return t
}

func isNarrow(row *lease.HeldRow) bool {
	t, ok := row.Grant.Ticket.(*ticket)
	return ok && t.narrow
}

// nextRenewal returns the time until the next renewal of a lease that was just renewed. This is after, or less if some nodes may not have the lease.
func nextRenewal(row *lease.HeldRow, after time.Duration, everywhere bool) time.Duration {
	t, ok := row.Grant.Ticket.(*ticket)
	if !ok {
		return after
	}
	if everywhere {
		t.repair.Store(int64(SpreadAfter))
		return after
	}
	repair := time.Duration(t.repair.Load())
	t.repair.Store(int64(min(2*repair, row.Request.Lease)))
	return min(after, repair)
}

// An offers is a set of lease ids that may have been granted: nodes were asked to accept a register with the grant, and the outcome is unknown. The
// votes for these ids must not be taken back. Otherwise other clients would consider the run dead, and its tick would be lost. The caller repeats the
// request with the same id later. An offers is safe for concurrent use.
type offers struct {
	mu    sync.Mutex
	until map[string]time.Duration // by lease id: the local instant after which no node has a row
}

func (o *offers) add(id string, now time.Duration, lease time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.until, func(_ string, end time.Duration) bool { return end < now })
	if o.until == nil {
		o.until = map[string]time.Duration{}
	}
	o.until[id] = now + lease
}

// isOpen reports whether a lease id may have been granted.
func (o *offers) isOpen(id string, now time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	end, ok := o.until[id]
	return ok && end >= now
}

func (o *offers) removeOffer(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.until, id)
}
