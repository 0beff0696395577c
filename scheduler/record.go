package scheduler

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

// An Outcome is the result of a tick or a run.
type Outcome string

// The outcomes.
const (
	Running   Outcome = "running"
	OK        Outcome = "ok"
	Failed    Outcome = "failed"
	TimedOut  Outcome = "timeout"
	Canceled  Outcome = "canceled"  // reason user, replaced or drain
	Lost      Outcome = "lost"      // the run was stopped because its lease was lost
	Abandoned Outcome = "abandoned" // the replica of the run died
	Skipped   Outcome = "skipped"   // reason overlap or paused
	Missed    Outcome = "missed"    // the tick never ran; reason late, down, labels, redis, overload, capacity, pool, slots or cannot_start
)

// reasonDrain is the reason of a run that was stopped in a drain.
const reasonDrain = "drain"

// SkippedPaused is the outcome and reason of the ticks of a paused job, for [election.PauseOrder].
const SkippedPaused = string(Skipped) + " paused"

// A Record is the outcome of a tick, or the state of a run. Times are by the clock of Redis, or by [Config.Clock] until the clock of Redis is known.
type Record struct {
	RunID             string
	Job               string
	Tick              time.Time // zero for a run outside the schedule
	Local             time.Time // see [Run.Local]
	Trigger           string
	Slot, Attempt     int
	Token             int64 // 0 for a tick without a run
	Replica           string
	Outcome           Outcome
	Reason            string
	Detail            string // details about a missed tick, or the processes that a run left behind; may be ""
	ExitCode          *int
	Signal            string
	Started, Finished time.Time
	// Retried is true for the record of a failed try that was followed by another try. The run itself has its own record.
	Retried bool
	// FailedTries is the number of these records of the run.
	FailedTries int
	// Recovers is true if a recovery will follow an abandoned run.
	Recovers bool
	// Ticks is the number of ticks that the record stands for, if the ticks of a gap share one record; otherwise 0.
	Ticks  int
	Output []byte
	// OutputCut is the number of bytes of output that are missing before Output.
	OutputCut int64
}

// tickRecord returns the record of a tick without a run. Its RunID is the same on every replica. verdict has the form "OUTCOME REASON", as in a
// claim.
func tickRecord(job string, of named, verdict, replica string, now time.Time) Record {
	outcome, reason, _ := strings.Cut(verdict, " ")
	id := of.at.UTC().Format("20060102T150405Z")
	if local := of.localTime(); !local.IsZero() {
		id = local.Format("20060102T150405")
	}
	return Record{RunID: job + "." + id, Job: job, Tick: of.at, Local: of.localTime(), Trigger: scheduled,
		Replica: replica, Outcome: Outcome(outcome), Reason: reason, Finished: now}
}

// logFields returns the keys and values of the log line for the end of a run.
func (r *Record) logFields() []any {
	args := []any{"outcome", string(r.Outcome), "duration", r.Finished.Sub(r.Started).Round(time.Millisecond).String()}
	if r.Reason != "" {
		args = append(args, "reason", r.Reason)
	}
	return args
}

// The values of [Run.Trigger].
const (
	scheduled = agenda.Scheduled
	caughtUp  = agenda.CaughtUp
	recovered = "recovery"
	manual    = "manual"
)

// setOutcome sets the outcome of a run from the cause of its stop, or from the result if it was not stopped. A failure after the lease has expired
// counts as lost, because the run may have been killed while this process stood still.
func (r *Record) setOutcome(result Result, cause error, lapsed bool) {
	r.ExitCode, r.Signal, r.Output, r.OutputCut = result.ExitCode, result.Signal, result.Output, result.OutputCut
	r.Detail = result.LeftBehind
	if cause == nil && result.Err != nil && (lapsed || errors.Is(result.Err, ErrLost)) {
		cause = ErrLost
	}
	switch {
	case errors.Is(cause, ErrTimeout):
		r.Outcome = TimedOut
	case errors.Is(cause, ErrDrain):
		r.Outcome, r.Reason = Canceled, reasonDrain
	case errors.Is(cause, ErrReplaced):
		r.Outcome, r.Reason = Canceled, "replaced"
	case errors.Is(cause, ErrLost):
		r.Outcome = Lost
	case errors.Is(cause, errStartTimeout): // the run was stopped for its StartTimeout, but the work began before the stop
		r.Outcome, r.Reason = Failed, cause.Error()
	case cause != nil:
		r.Outcome, r.Reason = Canceled, "user"
	case result.Err != nil:
		r.Outcome, r.Reason = Failed, result.Err.Error()
	default:
		r.Outcome = OK
	}
}

// tryRecord returns the record of a try that another try follows. Its id consists of the run id and the attempt number.
func (r *Record) tryRecord(began time.Time) Record {
	one := *r
	one.RunID, one.Started, one.Retried, one.FailedTries = fmt.Sprintf("%s.%d", r.RunID, r.Attempt), began, true, 0
	return one
}

// beginAttempt resets the record of a run for its next attempt.
func (r *Record) beginAttempt(attempt int) {
	r.Attempt, r.Outcome, r.Reason, r.Detail, r.FailedTries = attempt, Running, "", "", r.FailedTries+1
	r.Finished, r.ExitCode, r.Signal, r.Output, r.OutputCut = time.Time{}, nil, "", nil, 0
}

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
