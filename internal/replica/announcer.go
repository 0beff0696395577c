package replica

import (
	"context"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
)

// announcer repeats this replica's knowledge of all jobs to a Redis that may have lost it: each inspection of a job carries it. Without that Redis would get it
// only when a job is next due, and until then a replica without that knowledge could be granted the lock.
type announcer struct {
	sweep func(context.Context, ...string) error // inspects all jobs
	log   hclog.Logger
	due   atomic.Bool // Redis may lack some of the knowledge
	begin notice      // an announcement is to begin
}

// announceIfDue begins an announcement, if one is due. It follows a registration: while Redis does not answer, an announcement does not help.
func (a *announcer) announceIfDue() {
	if a.due.Swap(false) {
		a.begin.give()
	}
}

// run announces until ctx ends. An announcement ends by the time-outs of its requests, and by no limit as a whole: one that was cut off would begin anew.
func (a *announcer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.begin:
			a.announce(ctx)
		}
	}
}

func (a *announcer) announce(ctx context.Context) {
	if err := a.sweep(ctx); err != nil {
		a.log.Debug("jobs not re-announced yet", "error", err)
		a.due.Store(true)
	}
}
