package quorum

import (
	"context"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// A task is one operation on one lock, which takes several rounds. The tasks of a batch share round trips.
type task interface {
	// lockName returns the name of the lock. Tasks on the same lock run one after the other, so that the older tick is granted first.
	lockName() string
	// toFirst reports whether the next call is only for the first node.
	toFirst() bool
	// nextCall returns the next call, and the number of nodes to ask at once.
	nextCall() (k nodeCall, wave int)
	// isSure reports whether the votes are enough for handleVotes. late is true once slow nodes are no longer awaited.
	isSure(votes []vote, late bool) bool
	// handleVotes handles the votes. Unless done, nextCall is called after the pause.
	handleVotes(votes []vote, sent time.Duration) (pause time.Duration, done bool)
	// failWith ends the task with an error.
	failWith(err error)
}

// runTasks runs tasks until they are done. When ctx ends, the remaining tasks fail.
func (q *masters) runTasks(ctx context.Context, tasks []task) {
	ready := make([]time.Duration, len(tasks)) // the time of each task's next round; -1 when the task is done
	last := make([][]vote, len(tasks))         // the last votes of each task, for its error
	for {
		now := q.env.clock()
		batch, soonest := dueTasks(tasks, ready, now)
		switch {
		case len(batch) == 0 && soonest < 0:
			return
		case len(batch) == 0:
			backoff.Sleep(ctx, soonest-now)
		default:
			q.runRound(ctx, tasks, batch, ready, last)
		}
		if ctx.Err() == nil {
			continue
		}
		for i, at := range ready {
			switch {
			case at < 0:
			case last[i] != nil:
				tasks[i].failWith(q.errorOf(last[i]))
			default:
				tasks[i].failWith(transport.Unknown(context.Cause(ctx)))
			}
		}
		return
	}
}

// dueTasks returns the tasks whose next round is due, and the time at which the next task is due; -1 if there is none. Tasks that call only the first
// node come first, in a batch of their own.
func dueTasks(tasks []task, ready []time.Duration, now time.Duration) (batch []int, soonest time.Duration) {
	soonest = -1
	var first []int
	before := map[string]bool{} // locks with an earlier unfinished task
	for i, at := range ready {
		if at < 0 || before[tasks[i].lockName()] {
			continue
		}
		before[tasks[i].lockName()] = true
		switch {
		case at <= now && tasks[i].toFirst() && len(first) < lease.MaxBatch:
			first = append(first, i)
		case at <= now && len(batch) < lease.MaxBatch:
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

// runRound asks the nodes once for all tasks of a batch.
func (q *masters) runRound(ctx context.Context, tasks []task, batch []int, ready []time.Duration, last [][]vote) {
	p := poll{calls: make([]nodeCall, len(batch)), first: tasks[batch[0]].toFirst()}
	for n, i := range batch {
		var all int
		p.calls[n], all = tasks[i].nextCall()
		p.wave, p.patience = max(p.wave, all), max(p.patience, p.calls[n].patience)
	}
	p.sure = func(votes [][]vote, late bool) bool {
		for n, i := range batch {
			if !tasks[i].isSure(votes[n], late) {
				return false
			}
		}
		return true
	}
	votes, sent := q.askNodes(ctx, p)
	now := q.env.clock()
	for n, i := range batch {
		last[i] = votes[n]
		if q.refuseForGood(votes[n]) { // a repeated call would be refused as well
			tasks[i].failWith(fmt.Errorf("key %q: %w", p.calls[n].keys[1], q.errorOf(votes[n])))
			ready[i] = -1
			continue
		}
		pause, done := tasks[i].handleVotes(votes[n], sent)
		if ready[i] = now + pause; done {
			ready[i] = -1
		}
	}
}
