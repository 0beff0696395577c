package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/cronclave/cronclave/internal/lease/register"
	"github.com/cronclave/cronclave/internal/lease/script"
)

// stop writes the stop request into the registers, and then marks the holders' rows on all nodes that answer.
// The reply to the next renewal carries the mark to the holder: one node is enough for that. The order matters:
// a holder that received the request is already registered as stopped, so the orphan that it leaves when it dies
// carries the request.
func (q *quorum) stop(ctx context.Context, requests []StopRequest, answers []StopAnswer, asked []int) {
	if len(asked) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*q.cfg.Timeout)
	defer cancel()
	changes, tasks, chosen := make([]*change, len(asked)), make([]task, len(asked)), make([]register.Choice, len(asked))
	for n, i := range asked {
		r := requests[i]
		t := &change{quorum: q, lock: r.Lock, permanent: r.Permanent, look: true}
		t.edit = func(g *register.Register, v register.View) { chosen[n] = g.Stop(r, q.state(g, v, 0, 0).Rows, v) }
		changes[n], tasks[n] = t, t
	}
	q.run(ctx, tasks)
	for n, i := range asked {
		switch failed := changes[n].failed; {
		case failed != nil:
			answers[i].Err = fmt.Errorf("stop a holder of %q: %w", requests[i].Lock, failed)
		case chosen[n].Found:
			answers[i] = q.mark(ctx, requests[i], chosen[n])
		}
	}
}

// mark has the holder of a row told.
func (q *quorum) mark(ctx context.Context, r StopRequest, c register.Choice) StopAnswer {
	k := nodeCall{script: q.scripts.Stop, keys: q.keys(r.Lock, c.Row.ID), id: c.Row.ID, idle: q.idleOf(r.Permanent), args: script.QuorumStopArgs{Slot: c.Row.Slot, Reason: c.Reason}.Encode()}
	votes, _ := q.ask(ctx, poll{calls: []nodeCall{k}, wave: len(q.nodes), sure: func(votes [][]vote, late bool) bool {
		return silentNodes(votes[0]) == 0 || late && words(votes[0], "told", "gone") >= q.majority
	}})
	switch {
	case words(votes[0], "told") > 0:
		return StopAnswer{ID: c.Row.ID, Owner: c.Row.Owner, Slot: c.Row.Slot}
	case words(votes[0], "gone") >= q.majority:
		return StopAnswer{}
	}
	return StopAnswer{Err: fmt.Errorf("stop a holder of %q: %w", r.Lock, q.errorOf(votes[0]))}
}

// stopOf is why a holder is to stop whose lease the votes have renewed; "" if it is not.
func stopOf(votes []vote) string {
	n := slices.IndexFunc(votes, func(v vote) bool { return v.heard() && v.word == "renewed" && v.Text(0) != "" })
	if n < 0 {
		return ""
	}
	return votes[n].Text(0)
}
