package journal

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cronclave/cronclave/scheduler/run"
)

// Types of package run, for users of the journal.
type (
	Record  = run.Record // its RunID has 1 to MaxRunID visible ASCII characters without "|"
	Outcome = run.Outcome
	Reason  = run.Reason
)

// The outcomes of ticks and runs. All but OutcomeRunning are final.
const (
	OutcomeRunning   = run.Running
	OutcomeOK        = run.OK
	OutcomeFailed    = run.Failed
	OutcomeTimeout   = run.TimedOut
	OutcomeCanceled  = run.Canceled
	OutcomeLost      = run.Lost
	OutcomeAbandoned = run.Abandoned
	OutcomeSkipped   = run.Skipped
	OutcomeMissed    = run.Missed
)

const (
	// MaxRunID is the maximum length of a RunID, in bytes.
	MaxRunID = 200
	// MaxText is the maximum length of every other string of a record, in bytes; the rest is cut.
	MaxText = 256
)

// The weights of records, in ascending order. A record is stored in a field of the hash {JOB}:records. The name of the field is the weight, followed by the
// RunID.
const (
	weightRunning   = 'r'
	weightAbandoned = 'a'
	weightEnd       = 'e'
)

func weightOf(r *Record) byte {
	switch r.Outcome {
	case OutcomeRunning:
		return weightRunning
	case OutcomeAbandoned:
		return weightAbandoned
	}
	return weightEnd
}

// momentOf returns the time of a record: its end, otherwise its start, otherwise its tick.
func momentOf(r *Record) time.Time {
	switch {
	case !r.Finished.IsZero():
		return r.Finished
	case !r.Started.IsZero():
		return r.Started
	}
	return r.Tick
}

// runningScore is added to the score of a run in progress, so that it is above the scores of all ended runs. It exceeds the microseconds from 1970 to any time
// before the year 2112. The sum of the two is still exact as a floating-point number.
const runningScore = 1 << 52

func scoreOf(r *Record) float64 {
	us := momentOf(r).UnixMicro()
	if weightOf(r) == weightRunning {
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

// faultOfRecord returns a text about the first field of a record that no replica would have written, or "".
func faultOfRecord(r *Record) string {
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
	for _, s := range []string{r.TickLocal, r.Trigger, r.Replica, string(r.Outcome), string(r.Reason), r.Detail, r.Signal} {
		if len(s) > MaxText {
			return fmt.Sprintf("a text of %d bytes", len(s))
		}
	}
	return ""
}

// checkWritable returns an error if readers could not find the record or would refuse it.
func checkWritable(r *Record) error {
	switch m := momentOf(r); {
	case !IsJobName(r.Job):
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

// encodeRecord returns a record in its stored form, without its output and within the limits.
func encodeRecord(r Record) ([]byte, error) {
	r.Output = nil
	for _, s := range []*string{&r.TickLocal, &r.Trigger, &r.Replica, (*string)(&r.Outcome), (*string)(&r.Reason), &r.Detail, &r.Signal} {
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
	if fault := faultOfRecord(&r); fault != "" {
		return Record{}, fmt.Errorf("%w: run %s of job %s: %s", ErrCorrupt, id, job, fault)
	}
	return r, nil
}

// cutText shortens s to MaxText bytes, between characters.
func cutText[T ~string](s T) T {
	if len(s) <= MaxText {
		return s
	}
	n := MaxText
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// InstanceOf returns the parts of the name of an instance, JOB@REPLICA: a job with per_tick = "all" has an instance for each replica. For the name of any other
// job, replica is "".
func InstanceOf(name string) (job, replica string) {
	job, replica, _ = strings.Cut(name, "@")
	return job, replica
}

// longestInstance is the maximum length of the name of an instance. The run id of a tick without a run adds 17 bytes to it: see MaxRunID.
const longestInstance = 180

// IsJobName reports whether s can be the name of a job or of an instance of one. The name of a replica may contain dots, as the names of hosts do.
func IsJobName(s string) bool {
	job, replica, instance := strings.Cut(s, "@")
	return isName(job) && (!instance || len(s) <= longestInstance && isName(strings.ReplaceAll(replica, ".", "-")))
}

// isName reports whether s can be the name of a namespace, a pool, or a job in a file.
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

// The values of LeaseMargin.Of. The name of the job or pool follows MarginOfJob and MarginOfPool.
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
// kill_grace, a run is stopped when 38 % are left. So a margin below half of the lease warns before runs are stopped.
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
	// blocksPerRun is the number of blocks per record for which the history has space. With several blocks, a partly filled block wastes little of MaxBytes,
	// and many small outputs do not displace each other.
	blocksPerRun = 8
	minBlock     = 256 // in bytes; smaller blocks would waste memory, because each block needs 200 bytes besides its data
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

// joinBlocks returns the output in the blocks that were found under prefix, in order; nil if there are none. If the first blocks were trimmed, the result is
// only the end of the output.
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
