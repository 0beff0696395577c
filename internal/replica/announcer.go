package replica

import (
	"context"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
)

// An announcer restores this replica's knowledge of all jobs in a Redis that may have lost it. Each inspection of a job carries the knowledge. Otherwise
// Redis would receive it only when a job is next due, and until then could grant the lock to a replica without that knowledge.
type announcer struct {
	sweep func(context.Context, ...string) error // inspects all jobs
	log   hclog.Logger
	due   atomic.Bool // Redis may lack some of the knowledge
	begin notice      // wakes run
}

// announceIfDue starts an announcement if one is due. It is called after a registration, because an announcement is useless while Redis does not answer.
func (a *announcer) announceIfDue() {
	if a.due.Swap(false) {
		a.begin.give()
	}
}

// run announces until ctx ends. An announcement has no time limit as a whole, because it would start over; each of its requests has one.
func (a *announcer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.begin:
			a.announceAll(ctx)
		}
	}
}

func (a *announcer) announceAll(ctx context.Context) {
	if err := a.sweep(ctx); err != nil {
		a.log.Debug("jobs not re-announced yet", "error", err)
		a.due.Store(true)
	}
}
