package journal

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Outcomes of ticks and runs. All but OutcomeRunning are final.
const (
	OutcomeRunning   = "running"
	OutcomeOK        = "ok"
	OutcomeFailed    = "failed"
	OutcomeTimeout   = "timeout"
	OutcomeCanceled  = "canceled"
	OutcomeLost      = "lost"
	OutcomeAbandoned = "abandoned"
	OutcomeSkipped   = "skipped"
	OutcomeMissed    = "missed"
)

// Outcomes returns all of them.
func Outcomes() []string {
	return []string{OutcomeRunning, OutcomeOK, OutcomeFailed, OutcomeTimeout, OutcomeCanceled, OutcomeLost, OutcomeAbandoned, OutcomeSkipped, OutcomeMissed}
}

const (
	// MaxRunID is how many bytes a RunID may have.
	MaxRunID = 200
	// MaxText is how many bytes each other string of a record may have; the rest is cut.
	MaxText = 256
)

// LocalFormat is the format of [Record.TickLocal].
const LocalFormat = "2006-01-02T15:04:05"

// Record describes a run, or a tick that was settled without one. Its JSON is that of `history --json`: fields that do not apply are left out.
type Record struct {
	// RunID names the run in its job: 1 to MaxRunID visible ASCII characters
	// without "|". A tick without a run has one made of its job and time.
	RunID string `json:"run_id"`
	// Job is the job's name.
	Job string `json:"job"`
	// Tick is the nominal instant; zero for a run outside the schedule.
	Tick time.Time `json:"tick,omitzero"`
	// TickLocal is the local time that identifies a fixed-time tick, such as 2026-11-27T09:00:00, whichever instant a replica's zone data have for it;
	// "" for others.
	TickLocal string `json:"tick_local,omitempty"`
	// Trigger is what asked for it: schedule, manual, catch_up or recovery.
	Trigger string `json:"trigger,omitempty"`
	// Slot is the place held, nil for a tick without a run.
	Slot *int `json:"slot,omitempty"`
	// Attempt counts from 1; 0 for a tick without a run.
	Attempt int `json:"attempt,omitempty"`
	// Token is the fencing token; 0 if there was no grant.
	Token int64 `json:"token,omitempty"`
	// Replica is who ran it, or who settled it.
	Replica string `json:"replica,omitempty"`
	// Outcome is one of the Outcome constants; a newer version may know more.
	Outcome string `json:"outcome"`
	// Reason says more, in a word (docs/configuration.md#reasons) or an error's text.
	Reason string `json:"reason,omitempty"`
	// Detail says more of a missed tick: from when to when Redis did not answer, or why it could not decide. Of a run it names the
	// processes that the command left behind. "" if no more is known.
	Detail string `json:"detail,omitempty"`
	// ExitCode is nil if there was none: still running, or ended by a signal.
	ExitCode *int `json:"exit_code,omitempty"`
	// Signal is the name of the signal that ended it, such as SIGKILL.
	Signal string `json:"signal,omitempty"`
	// Started and Finished are by the server's clock as the caller estimates it.
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
	// DurationMS is how long it ran, in milliseconds; nil if it did not end.
	DurationMS *int64 `json:"duration_ms,omitempty"`
	// Retried says that it is of a try that failed, and that another one has
	// followed. The run has a record of its own.
	Retried bool `json:"retried,omitempty"`
	// FailedTries is how many such records the run has.
	FailedTries int `json:"failed_tries,omitempty"`
	// Ticks is how many ticks it stands for, where those of a gap have one record
	// together; else 0. It is for Config.First and not kept.
	Ticks int `json:"-"`
	// Recovers reports whether another replica runs an abandoned run again. It is for Config.First and not kept.
	Recovers bool `json:"-"`
	// OutputCut is how many bytes it wrote before the tail that is kept.
	OutputCut int64 `json:"output_cut,omitempty"`
	// Output is the tail of what it wrote; nil where there is none, it was not
	// asked for, or it had to go.
	Output *string `json:"output,omitempty"`
}

// When is when a run began, or a tick was found not to be run.
func (r Record) When() time.Time {
	if r.Started.IsZero() {
		return r.Finished
	}
	return r.Started
}

// MarshalJSON writes times in UTC, whatever zone they came in.
func (r Record) MarshalJSON() ([]byte, error) {
	type plain Record // without this method
	for _, t := range []*time.Time{&r.Tick, &r.Started, &r.Finished} {
		*t = t.UTC()
	}
	return json.Marshal(plain(r))
}

// Weights of words, heaviest last. Each is the first byte of a field's name.
const (
	weightRunning   = 'r'
	weightAbandoned = 'a'
	weightEnd       = 'e'
)

func (r *Record) weight() byte {
	switch r.Outcome {
	case OutcomeRunning:
		return weightRunning
	case OutcomeAbandoned:
		return weightAbandoned
	}
	return weightEnd
}

// moment is when a record's news happened.
func (r *Record) moment() time.Time {
	switch {
	case !r.Finished.IsZero():
		return r.Finished
	case !r.Started.IsZero():
		return r.Started
	}
	return r.Tick
}

// runningScore lifts runs that have not ended above all that have: it is more
// than the microseconds of any time before the year 2112, and the sum is still
// an exact number in a score.
const runningScore = 1 << 52

// score places a record among those of its job.
func (r *Record) score() float64 {
	us := r.moment().UnixMicro()
	if r.weight() == weightRunning {
		us += runningScore
	}
	return float64(us)
}

// scoreMoment is the moment that a score was made of.
func scoreMoment(score float64) time.Time {
	us := int64(score)
	if us >= runningScore {
		us -= runningScore
	}
	return time.UnixMicro(us)
}

// scored returns whether a score can be that of a record.
func scored(score float64) bool { return score >= 0 && score < 2*runningScore }

// fault returns the fault of a record that was read; "" if there is none.
func (r *Record) fault() string {
	switch {
	case !sound(r.Tick) || !sound(r.Started) || !sound(r.Finished):
		return "a time beyond the calendar"
	case r.Slot != nil && (*r.Slot < 0 || *r.Slot >= mostSlots):
		return fmt.Sprintf("slot %d", *r.Slot)
	case r.Attempt < 0 || r.Attempt > mostAttempts || r.Token < 0 || r.Token > mostToken:
		return fmt.Sprintf("attempt %d, token %d", r.Attempt, r.Token)
	case r.DurationMS != nil && (*r.DurationMS < 0 || *r.DurationMS > longestRun.Milliseconds()):
		return fmt.Sprintf("a duration of %d ms", *r.DurationMS)
	case r.OutputCut < 0:
		return fmt.Sprintf("%d bytes of output cut", r.OutputCut)
	}
	for _, s := range []string{r.TickLocal, r.Trigger, r.Replica, r.Outcome, r.Reason, r.Detail, r.Signal} {
		if len(s) > MaxText {
			return fmt.Sprintf("a text of %d bytes", len(s))
		}
	}
	return ""
}

// check refuses a record that could not be found again.
func (r *Record) check() error {
	switch m := r.moment(); {
	case !isName(r.Job):
		return fmt.Errorf("%w: job %q", ErrInvalid, r.Job)
	case !isRunID(r.RunID):
		return fmt.Errorf("%w: run id %.*q of job %s", ErrInvalid, MaxRunID, r.RunID, r.Job)
	case r.Outcome == "":
		return fmt.Errorf("%w: run %s of job %s has no outcome", ErrInvalid, r.RunID, r.Job)
	case m.UnixMicro() <= 0 || m.UnixMicro() >= runningScore/2:
		return fmt.Errorf("%w: run %s of job %s has no time, or an impossible one: %v", ErrInvalid, r.RunID, r.Job, m)
	}
	return nil
}

// encode is the record as it is stored, without its output and within limits.
func (r Record) encode() ([]byte, error) {
	r.Output = nil
	for _, s := range []*string{&r.TickLocal, &r.Trigger, &r.Replica, &r.Outcome, &r.Reason, &r.Detail, &r.Signal} {
		*s = cut(*s)
	}
	for _, t := range []*time.Time{&r.Tick, &r.Started, &r.Finished} {
		*t = t.Truncate(time.Microsecond)
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("%w: run %s of job %s: %w", ErrInvalid, r.RunID, r.Job, err)
	}
	return b, nil
}

// decode reads what encode wrote for run id of job. Fields that a newer version
// added are passed over.
func decode(job, id, text string) (Record, error) {
	var r Record
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Record{}, fmt.Errorf("%w: run %s of job %s: %w", ErrCorrupt, id, job, err)
	}
	if r.Job != job || r.RunID != id || r.Outcome == "" {
		return Record{}, fmt.Errorf("%w: run %s of job %s: the record there is of run %.40q of job %.40q", ErrCorrupt, id, job, r.RunID, r.Job)
	}
	if fault := r.fault(); fault != "" {
		return Record{}, fmt.Errorf("%w: run %s of job %s: %s", ErrCorrupt, id, job, fault)
	}
	return r, nil
}

// cut shortens s to MaxText bytes, between characters.
func cut(s string) string {
	if len(s) <= MaxText {
		return s
	}
	n := MaxText
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// IsJobName returns whether a job can have a name.
func IsJobName(name string) bool { return isName(name) }

// isName returns whether s can be the name of a namespace or a job.
func isName(s string) bool {
	if len(s) == 0 || len(s) > 128 || s[0] == '-' || s[0] == '_' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}

// isRunID returns whether s can name a run: the order of output's blocks needs a
// byte that no id has.
func isRunID(s string) bool {
	return len(s) > 0 && len(s) <= MaxRunID && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '|'
	})
}
