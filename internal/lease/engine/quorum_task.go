package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/register"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// task is one lock's way to an outcome, in rounds. Those of a batch travel together.
type task interface {
	// name is the lock. Tasks on one lock run one after the other, in their order: the task that is due first is
	// granted first.
	name() string
	// toFirst reports whether the next call is for the first node alone.
	toFirst() bool
	// next is what to ask the nodes, and of how many at once.
	next() (k nodeCall, wave int)
	// sure reports whether the votes are enough to go on.
	sure(votes []vote, late bool) bool
	// take goes on with the votes. Unless the task is done, it is asked for its next call after the pause.
	take(votes []vote, sent time.Duration) (pause time.Duration, done bool)
	// fail ends it without an outcome.
	fail(err error)
}

// run brings tasks to their ends, or fails those that have none when ctx ends.
func (q *quorum) run(ctx context.Context, tasks []task) {
	ready := make([]time.Duration, len(tasks)) // when each may go on; -1 when it is done
	last := make([][]vote, len(tasks))         // the last votes of each, for the error if there will be one
	for {
		now := q.cfg.Clock()
		batch, soonest := due(tasks, ready, now)
		switch {
		case len(batch) == 0 && soonest < 0:
			return
		case len(batch) == 0:
			backoff.Sleep(ctx, soonest-now)
		default:
			q.round(ctx, tasks, batch, ready, last)
		}
		if ctx.Err() == nil {
			continue
		}
		for i, at := range ready {
			switch {
			case at < 0:
			case last[i] != nil:
				tasks[i].fail(q.errorOf(last[i]))
			default:
				tasks[i].fail(transport.Unknown(context.Cause(ctx)))
			}
		}
		return
	}
}

// due are the tasks to go on with now, or else when the first may be; -1 if all are done. Those whose call is for the first node alone go before the others.
func due(tasks []task, ready []time.Duration, now time.Duration) (batch []int, soonest time.Duration) {
	soonest = -1
	var first []int
	before := map[string]bool{} // locks that an earlier task is not done with
	for i, at := range ready {
		if at < 0 || before[tasks[i].name()] {
			continue
		}
		before[tasks[i].name()] = true
		switch {
		case at <= now && tasks[i].toFirst() && len(first) < maxBatch:
			first = append(first, i)
		case at <= now && len(batch) < maxBatch:
			batch = append(batch, i)
		case soonest < 0 || at < soonest:
			soonest = at
		}
	}
	if len(first) > 0 {
		return first, soonest
	}
	return batch, soonest
}

// round asks the nodes once for all tasks of a batch.
func (q *quorum) round(ctx context.Context, tasks []task, batch []int, ready []time.Duration, last [][]vote) {
	p := poll{calls: make([]nodeCall, len(batch)), first: tasks[batch[0]].toFirst()}
	for n, i := range batch {
		var all int
		p.calls[n], all = tasks[i].next()
		p.wave, p.patience = max(p.wave, all), max(p.patience, p.calls[n].patience)
	}
	p.sure = func(votes [][]vote, late bool) bool {
		for n, i := range batch {
			if !tasks[i].sure(votes[n], late) {
				return false
			}
		}
		return true
	}
	votes, sent := q.ask(ctx, p)
	now := q.cfg.Clock()
	for n, i := range batch {
		last[i] = votes[n]
		if q.refuse(votes[n]) { // and would, however often they are asked
			tasks[i].fail(fmt.Errorf("key %q: %w", p.calls[n].keys[1], q.errorOf(votes[n])))
			ready[i] = -1
			continue
		}
		pause, done := tasks[i].take(votes[n], sent)
		if ready[i] = now + pause; done {
			ready[i] = -1
		}
	}
}

// claimReply is the content of the reply to a claim, or to a look without one, besides its
// verdict.
type claimReply struct {
	slot         int
	token, limit int64
	ballot       int64
	value        string
	rows         []any // slot, row, ...
	permanent    bool
}

func (v vote) claim() claimReply {
	return claimReply{slot: int(v.Number(0)), token: v.Number(1), limit: v.Number(2), ballot: v.Number(3), value: v.Text(4), rows: v.List(5),
		permanent: v.Text(6) != ""}
}

// told reports whether a vote has a node's state, and counts: the node neither has forgotten nor
// refused to look.
func (v vote) told() bool {
	return v.heard() && slices.Contains([]string{"yes", "held", "seen", "promised", "stale", "far", "limit"}, v.word)
}

// liveRows are the rows whose lease, and the delay after it, have not ended by the clocks of the nodes that
// report them.
func liveRows(votes []vote) []register.NodeRow {
	var rows []register.NodeRow
	for _, v := range votes {
		if !v.told() {
			continue
		}
		list := v.claim().rows
		for i := 0; i+1 < len(list); i += 2 {
			row, delay, ok := parseNodeRow(transport.Text(list[i+1]))
			if row.Slot = int(transport.Number(list[i])); !ok || row.Expiry+delay <= v.now {
				continue
			}
			at := slices.IndexFunc(rows, func(r register.NodeRow) bool { return r.Slot == row.Slot && r.ID == row.ID })
			if at < 0 {
				rows = append(rows, row)
				at = len(rows) - 1
			}
			rows[at].Votes++
			rows[at].Expiry = max(rows[at].Expiry, row.Expiry)
			if rows[at].State == register.RowTentative || row.State == register.RowEntered {
				rows[at].State = row.State
			}
		}
	}
	return rows
}

// parseNodeRow reads "id\ntoken\nexpiry\nlease\ndelay\nstate\nowner", as lua/quorum.lua has it.
func parseNodeRow(s string) (row register.NodeRow, delay int64, ok bool) {
	part := strings.SplitN(s, "\n", 7)
	if len(part) < 7 {
		return register.NodeRow{}, 0, false
	}
	return register.NodeRow{ID: part[0], Token: lease.ParseNumber(part[1]), Expiry: lease.ParseNumber(part[2]), Lease: lease.ParseNumber(part[3]),
		State: part[5], Owner: part[6]}, lease.ParseNumber(part[4]), true
}

// newest is the register of the greatest ballot, and how many nodes have accepted just that.
func newest(votes []vote) (value string, ballot int64, agree int) {
	for _, v := range votes {
		if !v.told() {
			continue
		}
		switch r := v.claim(); {
		case agree == 0 || r.ballot > ballot:
			value, ballot, agree = r.value, r.ballot, 1
		case r.ballot == ballot:
			agree++
		}
	}
	return value, ballot, agree
}

func valueOf(votes []vote) string {
	value, _, _ := newest(votes)
	return value
}

// floorOf is the greatest floor among the votes.
func floorOf(votes []vote) (floor int64) {
	for _, v := range votes {
		if v.heard() {
			floor = max(floor, v.floor)
		}
	}
	return floor
}

// silentNodes are those of which nothing was heard yet, and that are waited for.
func silentNodes(votes []vote) int {
	return count(votes, func(v vote) bool { return v.silent && !v.absent })
}
