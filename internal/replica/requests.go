package replica

import (
	"context"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler"
)

// requests gives the scheduler access to trigger requests. The journal stores the requests. The lock of a request selects the replica that handles it.
type requests struct {
	journal *journal.Journal
	elector *election.Elector
}

// Subscribe passes the journal's requests to f.
func (r requests) Subscribe(ctx context.Context, f func([]scheduler.Request)) {
	r.journal.Subscribe(ctx, func(heard []journal.Request) {
		list := make([]scheduler.Request, len(heard))
		for i, q := range heard {
			list[i] = scheduler.Request{ID: q.ID, Job: q.Job, Tick: q.Tick, Created: q.Created, Expires: q.Expires}
		}
		f(list)
	})
}

// ClaimTrigger claims a request by its lock.
func (r requests) ClaimTrigger(ctx context.Context, e election.TriggerRequest) election.Result {
	return r.elector.ClaimTrigger(ctx, e)
}

// Answer writes the answer to a request.
func (r requests) Answer(ctx context.Context, a scheduler.Answer) error {
	return r.journal.Answer(ctx, journal.Answer{Request: a.Request, Outcome: string(a.Outcome), Reason: a.Reason, Replica: a.Replica, RunID: a.RunID})
}
