package scheduler

import (
	"context"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
)

// level is how much an outcome matters. ERROR is for what has failed for good; what has another chance, or was lost without a failure, is WARN; what was decided
// so is INFO. pending tells that a recovery follows.
func (o Outcome) level(reason string, pending bool) hclog.Level {
	switch o {
	case Failed, TimedOut, Lost, Abandoned:
		if pending {
			return hclog.Warn
		}
		return hclog.Error
	case Missed:
		return hclog.Warn
	case Canceled:
		if reason == reasonDrain && !pending {
			return hclog.Warn
		}
	}
	return hclog.Info
}

// tell logs the end of a run, once it is known whether a recovery follows. Where the end is returned to a caller it is for that one to tell.
func (r *Record) tell(run *Run, what string, pending bool, more ...any) {
	level := r.Outcome.level(r.Reason, pending)
	if run.returned {
		level = hclog.Debug
	}
	args := append(more, r.summary()...)
	if r.FailedTries > 0 {
		args = append(args, "failed_tries", r.FailedTries)
	}
	run.Logger.Log(level, what, args...)
}

// tellVerdict logs that a tick was not run. verdict is "outcome reason".
func (s *Scheduler) tellVerdict(k *tick, verdict string) {
	outcome, reason, _ := strings.Cut(verdict, " ")
	s.log.Log(Outcome(outcome).level(reason, false), "tick not run", "job", k.task.Name, "tick", k.at.Format(time.RFC3339), "outcome", verdict)
}

// tellLostLease logs the loss of a lease that its run outlives, until stop is called. Any other loss is told by the end of the run.
func tellLostLease(job *Job, run *Run, term *election.Term) (stop func() bool) {
	if term == nil || !job.OutlivesLease {
		return func() bool { return true }
	}
	return context.AfterFunc(term.Context(), func() {
		run.Logger.Warn("lease lost; the run goes on", "error", context.Cause(term.Context()))
	})
}
