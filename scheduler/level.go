package scheduler

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
)

// logLevel returns the log level of an outcome. ERROR is for a run that has failed for good. WARN is for a tick or run that has another chance, or was
// lost without a failure. INFO is for an outcome that a policy or a user has decided. pending means that a recovery follows.
func (o Outcome) logLevel(reason string, pending bool) hclog.Level {
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

// logEnd logs the end of a run, once it is known whether a recovery follows. If the end is returned to a caller, the caller logs it.
func (r *Record) logEnd(run *Run, what string, pending bool, more ...any) {
	level := r.Outcome.logLevel(r.Reason, pending)
	if run.returned {
		level = hclog.Debug
	}
	args := append(more, r.logFields()...)
	if r.FailedTries > 0 {
		args = append(args, "failed_tries", r.FailedTries)
	}
	run.Logger.Log(level, what, args...)
}

// streakTimeout bounds the wait of the log line of a failed run for the failures before it. The run keeps its place on the replica meanwhile.
const streakTimeout = recordTimeout / 4

// earlierFailures returns the keys and values about earlier failures for the log line of a failed run, or nil if the history does not answer.
func (x *executor) earlierFailures(r *Record) []any {
	if x.streak == nil || x.recorder.failing.Load() || r.Outcome != Failed && r.Outcome != TimedOut && r.Outcome != Lost {
		return nil
	}
	ctx, cancel := context.WithTimeout(x.parting, streakTimeout)
	defer cancel()
	defer context.AfterFunc(x.abort, cancel)()
	return x.streak(ctx, r.Job)
}

// logLostLease logs the loss of a lease that the run outlives, until stop is called. Any other loss is logged with the end of the run.
func logLostLease(job *Job, run *Run, term *election.Term) (stop func() bool) {
	if term == nil || !job.OutlivesLease {
		return func() bool { return true }
	}
	return context.AfterFunc(term.Context(), func() {
		run.Logger.Warn("lease lost; the run goes on", "error", context.Cause(term.Context()))
	})
}
