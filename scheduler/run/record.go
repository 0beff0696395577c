package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	Canceled  Outcome = "canceled"  // the run was stopped on purpose
	Lost      Outcome = "lost"      // the run was stopped because its lease was lost
	Abandoned Outcome = "abandoned" // the replica of the run died, or was cut off
	Skipped   Outcome = "skipped"   // the job was paused, or had no free slot and does not wait for one
	Missed    Outcome = "missed"    // the tick did not start by its deadline
)

// Outcomes returns all outcomes.
func Outcomes() []Outcome {
	return []Outcome{Running, OK, Failed, TimedOut, Canceled, Lost, Abandoned, Skipped, Missed}
}

// Failures returns the outcomes that are failures. Of the other outcomes, only ok ends a streak of failures.
func Failures() []Outcome { return []Outcome{Failed, TimedOut, Lost, Abandoned, Missed} }

// A Reason is the reason for an outcome: one of the constants, or the text of an error.
type Reason string

// The reasons, first the reasons of missed ticks.
const (
	ReasonLate        Reason = "late"         // the tick was claimed too late, for an unknown reason
	ReasonDown        Reason = "down"         // no replica was up
	ReasonLabels      Reason = "labels"       // no replica with the job's labels was up
	ReasonRedis       Reason = "redis"        // Redis did not answer
	ReasonOverload    Reason = "overload"     // the replica was too busy or stood still, so it did not claim in time or did not read the answer
	ReasonCapacity    Reason = "capacity"     // no replica had a free place for the run
	ReasonPool        Reason = "pool"         // the job's pool had no free slot
	ReasonSlots       Reason = "slots"        // all slots of the job were held
	ReasonCannotStart Reason = "cannot_start" // no replica could start the job's program, so grants of the tick were given back

	// Reasons of skipped ticks.
	ReasonOverlap Reason = "overlap" // all slots of the job were held, and the tick does not wait for one
	ReasonPaused  Reason = "paused"

	// Reasons of canceled runs. An abandoned run has user or replaced if its replica died before the run was stopped.
	ReasonUser     Reason = "user"
	ReasonReplaced Reason = "replaced" // a newer tick replaced the run
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

// The texts of the verdicts that a claim or a pause passes to Redis.
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

// A Record describes a run, or a tick that was settled without one. Times are by the clock of Redis, or by the clock of the replica until the clock of
// Redis is known. The JSON of a record is what the history stores and shows: fields that do not apply are left out.
type Record struct {
	// RunID identifies the run within its job. The RunID of a tick without a run is made from its job and time.
	RunID string `json:"run_id"`
	Job   string `json:"job"`
	// Tick is the instant of the tick; zero for a run outside the schedule.
	Tick time.Time `json:"tick,omitzero"`
	// TickLocal is the local time that identifies the tick, as text from [LocalText]; "" if Tick identifies the tick.
	TickLocal string `json:"tick_local,omitempty"`
	// Trigger is the cause of the run: schedule, manual, catch_up or recovery.
	Trigger string `json:"trigger,omitempty"`
	// Slot is the slot that the run held; nil for a tick without a run.
	Slot *int `json:"slot,omitempty"`
	// Attempt is the number of the attempt, from 1; 0 for a tick without a run.
	Attempt int `json:"attempt,omitempty"`
	// Token is the fencing token; 0 if there was no grant.
	Token int64 `json:"token,omitempty"`
	// Replica is the replica that executed the run or settled the tick.
	Replica string `json:"replica,omitempty"`
	// Outcome is one of the constants; newer versions may have others.
	Outcome Outcome `json:"outcome"`
	// Reason is a code (docs/configuration.md#reasons) or the text of an error.
	Reason Reason `json:"reason,omitempty"`
	// Detail has more facts, or is "": for a missed tick the time without an answer of Redis, why Redis could not decide, or why no program started; for a
	// run the processes that the command left behind, or the status of the HTTP answer; for a lost run also the reason why the lease ended.
	Detail string `json:"detail,omitempty"`
	// ExitCode is the exit status of the command; nil if there is none, such as for a run in progress or after a signal.
	ExitCode *int `json:"exit_code,omitempty"`
	// Signal is the name of the signal that ended the run, such as SIGKILL.
	Signal   string    `json:"signal,omitempty"`
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
	// DurationMS is the duration of the run in milliseconds; nil if it has not ended.
	DurationMS *int64 `json:"duration_ms,omitempty"`
	// Retried is true for the record of a failed try that was followed by another try. The run itself has its own record.
	Retried bool `json:"retried,omitempty"`
	// FailedTries is the number of records of the run that have Retried set.
	FailedTries int `json:"failed_tries,omitempty"`
	// Ticks is the number of successive ticks that share the record, if there are several; otherwise 0. The history does not store it.
	Ticks int `json:"-"`
	// Recovers is true if a recovery will follow an abandoned run. The history does not store it.
	Recovers bool `json:"-"`
	// OutputCut is the number of bytes of output that were cut off before Output.
	OutputCut int64 `json:"output_cut,omitempty"`
	// Output is the output tail; nil if there is none, if it was not requested, or if it was removed.
	Output *string `json:"output,omitempty"`
}

// LocalText returns the [Record.TickLocal] for a [Run.Local], such as 2026-11-27T09:00:00; "" for the zero time.
func LocalText(local time.Time) string {
	if local.IsZero() {
		return ""
	}
	return local.Format("2006-01-02T15:04:05")
}

// When returns the start of a run, or the time at which a tick was settled without one.
func (r Record) When() time.Time {
	if r.Started.IsZero() {
		return r.Finished
	}
	return r.Started
}

// Failed reports whether the record is a failure. The record of a failed try that was followed by another try is no failure.
func (r Record) Failed() bool { return !r.Retried && slices.Contains(Failures(), r.Outcome) }

// MarshalJSON writes times in UTC, whatever their zone.
func (r Record) MarshalJSON() ([]byte, error) {
	type plain Record // plain has no method MarshalJSON, so json.Marshal does not call this method again
	for _, t := range []*time.Time{&r.Tick, &r.Started, &r.Finished} {
		*t = t.UTC()
	}
	return json.Marshal(plain(r))
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

func (r *Record) keepResult(result Result) {
	r.ExitCode, r.Signal, r.Detail = result.ExitCode, result.Signal, result.LeftBehind
	if result.HTTPStatus != 0 {
		r.Detail = fmt.Sprintf("HTTP status %d", result.HTTPStatus)
	}
	if len(result.Output) > 0 {
		r.Output, r.OutputCut = new(string(result.Output)), result.OutputCut
	}
}

func (r *Record) finish(at time.Time) {
	r.Finished, r.DurationMS = at, new(at.Sub(r.Started).Milliseconds())
}

// setOutcome sets the outcome of a run from the cause of its stop, or from the error of its result if it was not stopped. lapsed is true if the lease
// has expired. A failure then counts as lost, because the warden may have killed the run while this process stood still.
func (r *Record) setOutcome(failure, cause error, lapsed bool) {
	if cause == nil && failure != nil && (lapsed || errors.Is(failure, ErrLost)) {
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
	case failure != nil:
		r.Outcome, r.Reason = Failed, Reason(failure.Error())
	default:
		r.Outcome = OK
	}
}

// tryRecord returns the record of a failed try that another try follows. Its id consists of the run id and the attempt number.
func (r *Record) tryRecord(began time.Time) Record {
	one := *r
	one.RunID, one.Started, one.Retried, one.FailedTries = fmt.Sprintf("%s.%d", r.RunID, r.Attempt), began, true, 0
	one.finish(r.Finished)
	return one
}

func (r *Record) beginAttempt(attempt int) {
	r.Attempt, r.Outcome, r.Reason, r.Detail, r.FailedTries = attempt, Running, "", "", r.FailedTries+1
	r.Finished, r.DurationMS, r.ExitCode, r.Signal, r.Output, r.OutputCut = time.Time{}, nil, nil, "", nil, 0
}
