package replica

import (
	"context"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
)

// An announcer restores the data of all jobs in a Redis that may have lost it, from this replica's copy. Each inspection of a job sends the copy. Otherwise,
// Redis would receive the copy only when the job is next due. Until then it could grant the lock to a replica without a copy.
type announcer struct {
	sweep func(context.Context, ...string) error // inspects all jobs
	log   hclog.Logger
	due   atomic.Bool // Redis may lack some of the data
	begin notice      // wakes run
}

// announceIfDue starts an announcement if one is due. Call it after a successful registration, because an announcement fails while Redis does not answer.
func (a *announcer) announceIfDue() {
	if a.due.Swap(false) {
		a.begin.give()
	}
}

// run announces until ctx ends. An announcement as a whole has no time limit, because it would start over after one. Each of its requests has a time limit.
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
