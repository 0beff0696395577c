package scheduler

import (
	"errors"
	"strings"
	"time"

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

// The causes with which the context of a run ends.
var (
	ErrTimeout = errors.New("the job's timeout has passed")
	ErrDrain   = errors.New("the replica is draining")
	ErrLost    = errors.New("the lease was lost")
)

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
