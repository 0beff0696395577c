package scheduler

import (
	"errors"
	"strings"
	"time"

	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

// Outcome is how a tick or a run ended.
type Outcome string

// The outcomes.
const (
	Running   Outcome = "running"
	OK        Outcome = "ok"
	Failed    Outcome = "failed"
	TimedOut  Outcome = "timeout"
	Canceled  Outcome = "canceled"  // reason user, replaced, drain
	Lost      Outcome = "lost"      // the lease was lost and the run was stopped
	Abandoned Outcome = "abandoned" // the holder died
	Skipped   Outcome = "skipped"   // reason overlap, paused
	Missed    Outcome = "missed"    // reason late, down, redis, overload, pool, capacity, slots, cannot_start
)

// reasonDrain is why a run was stopped whose replica drains. The reasons of ticks that were missed are the agenda's.
const reasonDrain = "drain"

// SkippedPaused is the outcome of the ticks of a job that is paused, as [election.PauseOrder] has it.
const SkippedPaused = string(Skipped) + " paused"

// The causes with which a run's context ends.
var (
	ErrTimeout = errors.New("the job's timeout has passed")
	ErrDrain   = errors.New("the replica is draining")
	ErrLost    = errors.New("the lease was lost")
)

// Record is the outcome of a tick, or the state of a run. Times are by the server's clock as far as it is known.
type Record struct {
	RunID             string
	Job               string
	Tick              time.Time // zero outside the schedule
	Local             time.Time // as in [Run]
	Trigger           string
	Slot, Attempt     int
	Token             int64 // 0 for a tick without a run
	Replica           string
	Outcome           Outcome
	Reason            string
	Detail            string // of a tick that was missed, beside the reason, or of what a run left behind; may be ""
	ExitCode          *int
	Signal            string
	Started, Finished time.Time
	// Retried says that it is of a try that failed, and that another one has followed: the outcome of the run is in a record of its own.
	Retried bool
	// FailedTries is how many tries of the run, before the one that ended it, have such records.
	FailedTries int
	// Recovers reports whether another replica runs an abandoned run again.
	Recovers bool
	// Ticks is how many ticks the record stands for, where those of a gap have one together; else 0.
	Ticks  int
	Output []byte
	// OutputCut is how many bytes the run printed before Output.
	OutputCut int64
}

// tickRecord is the outcome of a tick that had no run. Its RunID is the same on every replica. verdict is "outcome reason", as the claim had it.
func tickRecord(job string, of named, verdict, replica string, now time.Time) Record {
	outcome, reason, _ := strings.Cut(verdict, " ")
	id := of.at.UTC().Format("20060102T150405Z")
	if local := of.local(); !local.IsZero() {
		id = local.Format("20060102T150405")
	}
	return Record{RunID: job + "." + id, Job: job, Tick: of.at, Local: of.local(), Trigger: scheduled,
		Replica: replica, Outcome: Outcome(outcome), Reason: reason, Finished: now}
}

// summary returns the keys and values of the log line for the end of a run.
func (r *Record) summary() []any {
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
