package main

import (
	"context"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler"
)

// requests are what people ask of the cluster: the journal has them, and the locks decide who acts on them.
type requests struct {
	journal *journal.Journal
	elector *election.Elector
}

// Hear hands the journal's requests to the scheduler.
func (r requests) Hear(ctx context.Context, f func([]scheduler.Request)) {
	r.journal.Hear(ctx, func(heard []journal.Request) {
		list := make([]scheduler.Request, len(heard))
		for i, q := range heard {
			list[i] = scheduler.Request{ID: q.ID, Job: q.Job, Tick: q.Tick, Created: q.Created, Expires: q.Expires}
		}
		f(list)
	})
}

// Take asks the locks.
func (r requests) Take(ctx context.Context, e election.Errand) election.Result {
	return r.elector.Take(ctx, e)
}

// Answer tells who asked.
func (r requests) Answer(ctx context.Context, a scheduler.Answer) error {
	return r.journal.Answer(ctx, journal.Answer{Request: a.Request, Outcome: string(a.Outcome), Reason: a.Reason, Replica: a.Replica, RunID: a.RunID})
}
