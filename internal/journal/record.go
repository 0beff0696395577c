package journal

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// The outcomes of ticks and runs. All but OutcomeRunning are final.
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

// Outcomes returns all outcomes.
func Outcomes() []string {
	return []string{OutcomeRunning, OutcomeOK, OutcomeFailed, OutcomeTimeout, OutcomeCanceled, OutcomeLost, OutcomeAbandoned, OutcomeSkipped, OutcomeMissed}
}

const (
	// MaxRunID is the maximum length of a RunID, in bytes.
	MaxRunID = 200
	// MaxText is the maximum length of every other string of a record, in bytes; the rest is cut.
	MaxText = 256
)

// LocalFormat is the format of [Record.TickLocal].
const LocalFormat = "2006-01-02T15:04:05"

// A Record describes a run, or a tick that was settled without one. Its JSON is the output of `history --json`: fields that do not apply are left out.
type Record struct {
	// RunID identifies the run within its job: 1 to MaxRunID visible ASCII characters without "|". The RunID of a tick without a run is made from its job and
	// time.
	RunID string `json:"run_id"`
	Job   string `json:"job"`
	// Tick is the instant of the tick; zero for a run outside the schedule.
	Tick time.Time `json:"tick,omitzero"`
	// TickLocal is the local time of a fixed-time tick, such as 2026-11-27T09:00:00; "" for other ticks. It identifies the tick even if the zone data of replicas
	// differ.
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
	// Outcome is one of the Outcome constants; newer versions may have others.
	Outcome string `json:"outcome"`
	// Reason is a code (docs/configuration.md#reasons) or the text of an error.
	Reason string `json:"reason,omitempty"`
	// Detail has more facts. For a missed tick it is the time without an answer of Redis, or the reason why Redis could not decide. For a run it has the processes
	// that the command left behind. "" if nothing is known.
	Detail string `json:"detail,omitempty"`
	// ExitCode is nil if there was none: the run is in progress, or was ended by a signal.
	ExitCode *int `json:"exit_code,omitempty"`
	// Signal is the name of the signal that ended the run, such as SIGKILL.
	Signal string `json:"signal,omitempty"`
	// Started and Finished are by the writer's estimate of the clock of Redis.
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
	// DurationMS is the duration of the run in milliseconds; nil if it has not ended.
	DurationMS *int64 `json:"duration_ms,omitempty"`
	// Retried is set in the record of a failed attempt that the same run repeated. The run has another record.
	Retried bool `json:"retried,omitempty"`
	// FailedTries is the number of records of the run that have Retried set.
	FailedTries int `json:"failed_tries,omitempty"`
	// Ticks is the number of missed ticks if the record stands for a gap; otherwise 0. Only Config.First reads it, and Redis does not store it.
	Ticks int `json:"-"`
	// Recovers is set if another replica recovers the abandoned run. Only Config.First reads it, and Redis does not store it.
	Recovers bool `json:"-"`
	// OutputCut is the number of bytes of output that are missing before Output, which is only the end.
	OutputCut int64 `json:"output_cut,omitempty"`
	// Output is the output tail; nil if there is none, if it was not requested, or if it was removed.
	Output *string `json:"output,omitempty"`
}

// When returns the start of a run, or the time at which a tick was settled without one.
func (r Record) When() time.Time {
	if r.Started.IsZero() {
		return r.Finished
	}
	return r.Started
}

// MarshalJSON writes times in UTC, whatever their zone.
func (r Record) MarshalJSON() ([]byte, error) {
	type plain Record // has no MarshalJSON, which would call itself
	for _, t := range []*time.Time{&r.Tick, &r.Started, &r.Finished} {
		*t = t.UTC()
	}
	return json.Marshal(plain(r))
}

// The weights of records, in ascending order. A weight is the first byte of a field's name.
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

// moment returns the time of the record: its end, otherwise its start, otherwise its tick.
func (r *Record) moment() time.Time {
	switch {
	case !r.Finished.IsZero():
		return r.Finished
	case !r.Started.IsZero():
		return r.Started
	}
	return r.Tick
}

// runningScore is added to the score of a run in progress, so that it is above all ended runs. It exceeds the microseconds of any time before the year 2112.
// The sum is still exact as a floating-point number.
const runningScore = 1 << 52

func (r *Record) score() float64 {
	us := r.moment().UnixMicro()
	if r.weight() == weightRunning {
		us += runningScore
	}
	return float64(us)
}

func scoreMoment(score float64) time.Time {
	us := int64(score)
	if us >= runningScore {
		us -= runningScore
	}
	return time.UnixMicro(us)
}

func isScore(score float64) bool { return score >= 0 && score < 2*runningScore }

func (r *Record) findFault() string {
	switch {
	case !isSound(r.Tick) || !isSound(r.Started) || !isSound(r.Finished):
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

// checkWritable returns an error if readers could not find the record or would refuse it.
func (r *Record) checkWritable() error {
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

// encodeRecord returns the record in its stored form, without its output and within the limits.
func (r Record) encodeRecord() ([]byte, error) {
	r.Output = nil
	for _, s := range []*string{&r.TickLocal, &r.Trigger, &r.Replica, &r.Outcome, &r.Reason, &r.Detail, &r.Signal} {
		*s = cutText(*s)
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

// decodeRecord parses the stored record of a run. It ignores fields that a newer version has added.
func decodeRecord(job, id, text string) (Record, error) {
	var r Record
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Record{}, fmt.Errorf("%w: run %s of job %s: %w", ErrCorrupt, id, job, err)
	}
	if r.Job != job || r.RunID != id || r.Outcome == "" {
		return Record{}, fmt.Errorf("%w: run %s of job %s: the record there is of run %.40q of job %.40q", ErrCorrupt, id, job, r.RunID, r.Job)
	}
	if fault := r.findFault(); fault != "" {
		return Record{}, fmt.Errorf("%w: run %s of job %s: %s", ErrCorrupt, id, job, fault)
	}
	return r, nil
}

// cutText shortens s to MaxText bytes, between characters.
func cutText(s string) string {
	if len(s) <= MaxText {
		return s
	}
	n := MaxText
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// IsJobName reports whether a job can have the name.
func IsJobName(name string) bool { return isName(name) }

// isName reports whether s can be the name of a namespace or a job.
func isName(s string) bool {
	if len(s) == 0 || len(s) > 128 || s[0] == '-' || s[0] == '_' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}

// isRunID reports whether s can identify a run. "|" is not allowed, because it separates ids in the blocks of output and in the index of failures.
func isRunID(s string) bool {
	return len(s) > 0 && len(s) <= MaxRunID && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '|'
	})
}

// A LeaseMargin is the time that was left of a lease when it was renewed; 0 if the lease was lost.
type LeaseMargin struct {
	// Of names the holder: a job, a pool, or the leadership; "" in entries of older versions.
	Of      string `json:"of,omitempty"`
	LeftMS  int64  `json:"left_ms"`
	LeaseMS int64  `json:"lease_ms"`
}

// The values of LeaseMargin.Of. The name of the job or pool follows the first two.
const (
	MarginOfJob        = "job "
	MarginOfPool       = "pool "
	MarginOfLeadership = "the leadership"
)

// mostOf is the maximum length of the name of a holder, in bytes.
const mostOf = 300

// Lost reports whether the lease was lost.
func (m LeaseMargin) Lost() bool { return m.LeftMS == 0 }

// Low reports whether less than half of the lease was left. A renewal is sent after a third of the lease, so about two thirds are normal. With the longest
// grace, a run is stopped when 38 % are left. Half of the lease is a warning before that point.
func (m LeaseMargin) Low() bool { return 2*m.LeftMS < m.LeaseMS }

// Below reports whether m is a smaller fraction of its lease than other. Fractions are compared because a short lease has less time left without being closer
// to its end.
func (m LeaseMargin) Below(other LeaseMargin) bool {
	return float64(m.LeftMS)*float64(other.LeaseMS) < float64(other.LeftMS)*float64(m.LeaseMS)
}

// String returns a text such as "19.7s of 30s".
func (m LeaseMargin) String() string {
	return fmt.Sprintf("%.1fs of %gs", float64(m.LeftMS)/1000, float64(m.LeaseMS)/1000)
}

func (m *LeaseMargin) isSound() bool {
	return m == nil || m.LeftMS >= 0 && m.LeftMS <= m.LeaseMS && m.LeaseMS > 0 && m.LeaseMS <= longestLease.Milliseconds() &&
		len(m.Of) <= mostOf && utf8.ValidString(m.Of)
}

const (
	// blocksPerRun is the number of blocks per record that the history keeps. With several, a partly filled block wastes little of MaxBytes, and many small
	// outputs do not displace each other.
	blocksPerRun = 8
	minBlock     = 256 // bytes; a smaller block would cost more than it holds
)

// blocks describes the space for a job's output: the size of a block in bytes, and the number of blocks.
type blocks struct{ size, count int }

func blocksOf(maxBytes int64, runs int) blocks {
	size := min(max(maxBytes/int64(blocksPerRun*runs), minBlock), maxBytes)
	return blocks{int(size), int(maxBytes / size)}
}

// outputPrefix returns the prefix of all blocks of one run's output. Blocks are members of a sorted set with equal scores, so Redis orders them by their bytes.
// The prefix begins with the end of the run, so that the oldest output comes first.
func outputPrefix(ended time.Time, id string) string {
	return fmt.Sprintf("%016x|%s|", ended.UnixMicro(), id)
}

// splitOutput divides output into members of the set of blocks. If output exceeds the whole space, only its end is kept. Empty output becomes one empty block.
func (b blocks) splitOutput(prefix, output string) []string {
	if room := b.size * b.count; len(output) > room {
		output = output[len(output)-room:]
	}
	var members []string
	for i := 0; i == 0 || len(output) > 0; i++ {
		n := min(len(output), b.size)
		members = append(members, fmt.Sprintf("%s%06x|%s", prefix, i, output[:n]))
		output = output[n:]
	}
	return members
}

// joinBlocks returns the output in blocks that were found under prefix, in order; nil if there are none. If the first blocks were trimmed, the result is still
// the end of the output.
func joinBlocks(prefix string, members []string) *string {
	if len(members) == 0 {
		return nil
	}
	var b strings.Builder
	for _, m := range members {
		_, data, _ := strings.Cut(strings.TrimPrefix(m, prefix), "|")
		b.WriteString(data)
	}
	s := b.String()
	return &s
}

// outputRange returns the range of members that begin with prefix, which ends in "|".
func outputRange(prefix string) (from, to string) {
	return "[" + prefix, "(" + prefix[:len(prefix)-1] + "}" // "}" follows "|" in ASCII
}
