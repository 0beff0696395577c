package run

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
)

// An Outcome is the result of a tick or a run.
type Outcome string

// The outcomes.
const (
	Running   Outcome = "running"
	OK        Outcome = "ok"
	Failed    Outcome = "failed" // the reason is the text of the error
	TimedOut  Outcome = "timeout"
	Canceled  Outcome = "canceled"  // reason user, replaced or drain
	Lost      Outcome = "lost"      // the run was stopped because its lease was lost
	Abandoned Outcome = "abandoned" // the replica of the run died
	Skipped   Outcome = "skipped"   // reason overlap or paused
	Missed    Outcome = "missed"    // the tick never ran; reason late, down, labels, redis, overload, capacity, pool, slots or cannot_start
)

// A Reason is the reason for an outcome: one of the constants, or the text of an error.
type Reason string

// The reasons.
const (
	ReasonLate     Reason = "late"     // the tick was claimed too late, for an unknown reason
	ReasonDown     Reason = "down"     // no replica was up
	ReasonLabels   Reason = "labels"   // no replica with the job's labels was up
	ReasonRedis    Reason = "redis"    // Redis did not answer
	ReasonOverload Reason = "overload" // the replica was too busy or stood still, so it did not claim in time or did not read the answer
	ReasonCapacity Reason = "capacity" // no replica had a free place for the run
	ReasonPool     Reason = "pool"     // the job's pool had no free slot
	ReasonSlots    Reason = "slots"    // all slots of the job were held
	// ReasonCannotStart means that no replica could start the job's program, so grants of the tick were given back.
	ReasonCannotStart Reason = "cannot_start"

	ReasonOverlap Reason = "overlap" // all slots of the job were held, and the tick does not wait for one
	ReasonPaused  Reason = "paused"

	ReasonUser     Reason = "user"
	ReasonReplaced Reason = "replaced" // by a newer tick
	ReasonDrain    Reason = "drain"
)

// A Verdict is an outcome with its reason.
type Verdict struct {
	Outcome Outcome
	Reason  Reason
}

// String returns the text "OUTCOME REASON", which Redis stores for a tick that was decided without a run.
func (v Verdict) String() string {
	if v.Reason == "" {
		return string(v.Outcome)
	}
	return string(v.Outcome) + " " + string(v.Reason)
}

// ParseVerdict returns the verdict of a text from [Verdict.String].
func ParseVerdict(text string) Verdict {
	outcome, reason, _ := strings.Cut(text, " ")
	return Verdict{Outcome(outcome), Reason(reason)}
}

// The verdicts that a claim or a pause passes to Redis, as text.
const (
	SkippedOverlap = string(Skipped) + " " + string(ReasonOverlap)
	SkippedPaused  = string(Skipped) + " " + string(ReasonPaused)
)

// LogLevel returns the log level for a verdict: ERROR for a failed run, WARN for a failed run that will be recovered, a missed tick, or a run that a
// drain stopped for good, and INFO for the rest. pending means that a recovery follows.
func (v Verdict) LogLevel(pending bool) hclog.Level {
	switch v.Outcome {
	case Failed, TimedOut, Lost, Abandoned:
		if pending {
			return hclog.Warn
		}
		return hclog.Error
	case Missed:
		return hclog.Warn
	case Canceled:
		if v.Reason == ReasonDrain && !pending {
			return hclog.Warn
		}
	}
	return hclog.Info
}

// The values of [Run.Trigger].
const (
	Scheduled = "schedule"
	CaughtUp  = "catch_up"
	Recovered = "recovery"
	Manual    = "manual"
)

// A Record is the outcome of a tick, or the state of a run. Times are by the clock of Redis, or by the clock of the replica until the clock of Redis
// is known.
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
	Reason            Reason
	Detail            string // details about a missed tick, or the processes that a run left behind; may be ""
	ExitCode          *int
	Signal            string
	Started, Finished time.Time
	// Retried is true for the record of a failed try that was followed by another try. The run itself has its own record.
	Retried bool
	// FailedTries is the number of failed tries of the run that have a record with Retried.
	FailedTries int
	// Recovers is true if a recovery will follow an abandoned run.
	Recovers bool
	// Ticks is the number of ticks that the record stands for, if the ticks of a gap share one record; otherwise 0.
	Ticks  int
	Output []byte
	// OutputCut is the number of bytes of output that are missing before Output.
	OutputCut int64
}

// Verdict returns the outcome of the record, with its reason.
func (r *Record) Verdict() Verdict { return Verdict{r.Outcome, r.Reason} }

func (r *Record) logFields() []any {
	args := []any{"outcome", string(r.Outcome), "duration", r.Finished.Sub(r.Started).Round(time.Millisecond).String()}
	if r.Reason != "" {
		args = append(args, "reason", string(r.Reason))
	}
	return args
}

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
		r.Outcome, r.Reason = Canceled, ReasonDrain
	case errors.Is(cause, ErrReplaced):
		r.Outcome, r.Reason = Canceled, ReasonReplaced
	case errors.Is(cause, ErrLost):
		r.Outcome = Lost
	case errors.Is(cause, errStartTimeout): // the run was stopped for its StartTimeout, but the work began before the stop
		r.Outcome, r.Reason = Failed, Reason(cause.Error())
	case cause != nil:
		r.Outcome, r.Reason = Canceled, ReasonUser
	case result.Err != nil:
		r.Outcome, r.Reason = Failed, Reason(result.Err.Error())
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

func (r *Record) beginAttempt(attempt int) {
	r.Attempt, r.Outcome, r.Reason, r.Detail, r.FailedTries = attempt, Running, "", "", r.FailedTries+1
	r.Finished, r.ExitCode, r.Signal, r.Output, r.OutputCut = time.Time{}, nil, "", nil, 0
}
