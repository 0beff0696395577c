package scheduler

import (
	"errors"
	"strings"
	"time"

	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

// An Outcome is the way in which a tick or a run ended.
type Outcome string

// The outcomes.
const (
	Running   Outcome = "running"
	OK        Outcome = "ok"
	Failed    Outcome = "failed"
	TimedOut  Outcome = "timeout"
	Canceled  Outcome = "canceled"  // reason user, replaced or drain
	Lost      Outcome = "lost"      // the lease was lost, and the run was stopped
	Abandoned Outcome = "abandoned" // the holder died
	Skipped   Outcome = "skipped"   // reason overlap, paused
	Missed    Outcome = "missed"    // it never ran; package agenda has the reasons
)

// reasonDrain is the reason of a run that was stopped in a drain. Package agenda has the reasons of missed ticks.
const reasonDrain = "drain"

// SkippedPaused is the outcome of the ticks of a paused job, in the form of [election.PauseOrder].
const SkippedPaused = string(Skipped) + " paused"

// The causes with which the context of a run ends.
var (
	ErrTimeout = errors.New("the job's timeout has passed")
	ErrDrain   = errors.New("the replica is draining")
	ErrLost    = errors.New("the lease was lost")
)

// A Record is the outcome of a tick, or the state of a run. Times are by the server's clock as far as it is known.
type Record struct {
	RunID             string
	Job               string
	Tick              time.Time // zero outside the schedule
	Local             time.Time // see [Run]
	Trigger           string
	Slot, Attempt     int
	Token             int64 // 0 for a tick without a run
	Replica           string
	Outcome           Outcome
	Reason            string
	Detail            string // more about a missed tick, or about the processes that a run left behind; may be ""
	ExitCode          *int
	Signal            string
	Started, Finished time.Time
	// Retried is true for the record of a try that failed, and that another try has followed. The outcome of the run has a record of its own.
	Retried bool
	// FailedTries is the number of such records of the run.
	FailedTries int
	// Recovers reports whether another replica will run an abandoned run again.
	Recovers bool
	// Ticks is the number of ticks that the record stands for, if the ticks of a gap share one record; otherwise 0.
	Ticks  int
	Output []byte
	// OutputCut is the number of bytes that the run printed before Output.
	OutputCut int64
}

// tickRecord returns the record of a tick that had no run. Its RunID is the same on every replica. verdict is "outcome reason", as in the claim.
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
