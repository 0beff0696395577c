package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/script"
)

// Renew asks all nodes to renew a batch of leases. A result counts if a majority agrees.
func (q *Store) Renew(ctx context.Context, batch []lease.Renewal) []lease.Renewed {
	calls := make([]nodeCall, len(batch))
	for i, l := range batch {
		r, g := &l.Row.Request, &l.Row.Grant
		calls[i] = nodeCall{script: q.scripts.Renew, keys: q.nodeKeys(r.Lock, r.ID), id: r.ID, idle: q.idleOf(r.Permanent),
			args: script.QuorumRenewArgs{Slot: g.Slot, Lease: r.Lease, Token: g.Token, Owner: q.cfg.Owner, Delay: r.Delay, Slots: r.Slots}.Encode()}
	}
	votes, sent := q.askNodes(ctx, poll{calls: calls, wave: len(q.nodes), sure: func(votes [][]vote, late bool) bool {
		return !slices.ContainsFunc(votes, func(of []vote) bool {
			renewed, silent := countWords(of, "renewed"), silentNodes(of)
			return silent > 0 && (!late || renewed < q.majority && renewed+silent >= q.majority)
		})
	}})
	renewed := make([]lease.Renewed, len(batch))
	for i, of := range votes {
		renewed[i] = q.mergeRenewed(of, batch[i], sent)
	}
	return renewed
}

// mergeRenewed merges the votes for one lease. The lease is lost if so many nodes refused that no majority is left.
func (q *Store) mergeRenewed(votes []vote, r lease.Renewal, sent time.Duration) lease.Renewed {
	switch have := countWords(votes, "renewed"); {
	case have >= q.majority:
		length := r.Row.Request.Lease
		next := q.RenewAfter(length)
		if !r.Aside {
			next = nextRenewal(r.Row, next, have == len(q.nodes))
		}
		return lease.Renewed{Done: true, Left: length, Stop: stopOf(votes), Sent: sent, Next: next}
	case countWords(votes, "lost") > len(q.nodes)-q.majority:
		n := slices.IndexFunc(votes, func(v vote) bool { return v.hasAnswered() && v.word == "lost" })
		return lease.Renewed{Lost: true, Why: votes[n].Text(0)}
	}
	return lease.Renewed{Err: q.errorOf(votes)}
}

// RenewAfter returns a third of the time left, so that two renewals may fail. It returns at most [QuietBefore], so that masters that lost their data
// receive a renewal before a new quorum can begin.
func (q *Store) RenewAfter(left time.Duration) time.Duration { return min(left/3, QuietBefore) }
