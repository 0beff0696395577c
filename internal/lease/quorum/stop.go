package quorum

import (
	"context"
	"fmt"
	"slices"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/rules"
	"github.com/cronclave/cronclave/internal/lease/script"
)

// Stop writes the stop requests to the registers, and then marks the holders' rows on all nodes that answer. A holder gets the mark with the reply to
// its next renewal; one marked node is enough. The register must be first: if a holder dies after it has received the request, its orphan then has
// the stop reason.
func (q *Store) Stop(ctx context.Context, requests []lease.StopRequest) []lease.StopAnswer {
	ctx, cancel := context.WithTimeout(ctx, 2*q.cfg.Timeout)
	defer cancel()
	answers := make([]lease.StopAnswer, len(requests))
	changes, tasks, chosen := make([]*change, len(requests)), make([]task, len(requests)), make([]rules.Choice, len(requests))
	for i, r := range requests {
		t := &change{Store: q, lock: r.Lock, permanent: r.Permanent, look: true}
		t.edit = func(g *rules.Register, v rules.View) { chosen[i] = g.Stop(r, q.stateOf(g, v, 0, 0).Rows, v) }
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

// markRow marks a row on the nodes, so that its holder receives the stop request.
func (q *Store) markRow(ctx context.Context, r lease.StopRequest, c rules.Choice) lease.StopAnswer {
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

// stopOf returns the stop reason in the replies to a renewal; "" if there is none.
func stopOf(votes []vote) string {
	n := slices.IndexFunc(votes, func(v vote) bool { return v.hasAnswered() && v.word == "renewed" && v.Text(0) != "" })
	if n < 0 {
		return ""
	}
	return votes[n].Text(0)
}
