package scheduler

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
)

// logLevel returns the log level for an outcome: ERROR for a failed run, WARN for a failed run that will be recovered, a missed tick, or a run that a
// drain stopped for good, and INFO for the rest. pending means that a recovery follows.
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

// logEnd logs the end of a run. For a run of [Scheduler.RunNow] it uses DEBUG, because the caller reports the end.
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

// streakTimeout bounds the wait for Config.Streak before a failed run is logged. The run keeps its place on this replica during the wait.
const streakTimeout = recordTimeout / 4

// earlierFailures returns keys and values about earlier failures of the job, for the log line of a failed run. It returns nil for a run that did not
// fail, or if the history does not answer.
func (x *executor) earlierFailures(r *Record) []any {
	if x.streak == nil || x.recorder.failing.Load() || r.Outcome != Failed && r.Outcome != TimedOut && r.Outcome != Lost {
		return nil
	}
	ctx, cancel := context.WithTimeout(x.parting, streakTimeout)
	defer cancel()
	defer context.AfterFunc(x.abort, cancel)()
	return x.streak(ctx, r.Job)
}

// logLostLease logs the loss of the lease of a run with OutlivesLease, until stop is called. For other runs, the loss is logged with the end of the
// run.
func logLostLease(job *Job, run *Run, term *election.Term) (stop func() bool) {
	if term == nil || !job.OutlivesLease {
		return func() bool { return true }
	}
	return context.AfterFunc(term.Context(), func() {
		run.Logger.Warn("lease lost; the run goes on", "error", context.Cause(term.Context()))
	})
}
