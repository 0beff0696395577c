package quorum

import (
	"context"
	"fmt"
	"slices"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/register"
	"github.com/cronclave/cronclave/internal/lease/script"
)

// Stop writes the stop request into the registers, and then marks the holders' rows on all nodes that answer. The reply to the next renewal brings
// the mark to the holder, for which one node is enough. The order matters: a holder that received the request is already registered as stopped, so
// the orphan that it leaves when it dies has the request.
func (q *Store) Stop(ctx context.Context, requests []lease.StopRequest) []lease.StopAnswer {
	ctx, cancel := context.WithTimeout(ctx, 2*q.cfg.Timeout)
	defer cancel()
	answers := make([]lease.StopAnswer, len(requests))
	changes, tasks, chosen := make([]*change, len(requests)), make([]task, len(requests)), make([]register.Choice, len(requests))
	for i, r := range requests {
		t := &change{Store: q, lock: r.Lock, permanent: r.Permanent, look: true}
		t.edit = func(g *register.Register, v register.View) { chosen[i] = g.Stop(r, q.stateOf(g, v, 0, 0).Rows, v) }
		changes[i], tasks[i] = t, t
	}
	q.runTasks(ctx, tasks)
	for i, r := range requests {
		switch failed := changes[i].failed; {
		case failed != nil:
			answers[i].Err = fmt.Errorf("stop a holder of %q: %w", r.Lock, failed)
		case chosen[i].Found:
			answers[i] = q.markRow(ctx, r, chosen[i])
		}
	}
	return answers
}

// markRow marks a row, so that its holder receives the request.
func (q *Store) markRow(ctx context.Context, r lease.StopRequest, c register.Choice) lease.StopAnswer {
	k := nodeCall{script: q.scripts.Stop, keys: q.nodeKeys(r.Lock, c.Row.ID), id: c.Row.ID, idle: q.idleOf(r.Permanent), args: script.QuorumStopArgs{Slot: c.Row.Slot, Reason: c.Reason}.Encode()}
	votes, _ := q.askNodes(ctx, poll{calls: []nodeCall{k}, wave: len(q.nodes), sure: func(votes [][]vote, late bool) bool {
		return silentNodes(votes[0]) == 0 || late && countWords(votes[0], "told", "gone") >= q.majority
	}})
	switch {
	case countWords(votes[0], "told") > 0:
		return lease.StopAnswer{ID: c.Row.ID, Owner: c.Row.Owner, Slot: c.Row.Slot}
	case countWords(votes[0], "gone") >= q.majority:
		return lease.StopAnswer{}
	}
	return lease.StopAnswer{Err: fmt.Errorf("stop a holder of %q: %w", r.Lock, q.errorOf(votes[0]))}
}

// stopOf returns the reason for which the holder of a renewed lease is asked to stop, or "" if it is not.
func stopOf(votes []vote) string {
	n := slices.IndexFunc(votes, func(v vote) bool { return v.hasAnswered() && v.word == "renewed" && v.Text(0) != "" })
	if n < 0 {
		return ""
	}
	return votes[n].Text(0)
}
