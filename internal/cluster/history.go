package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/multierr"
)

// A HistoryRequest selects the records to read.
type HistoryRequest struct {
	// Job is the name of a job; "" for all jobs.
	Job string
	// Outcomes are the outcomes to include; nil for all records. With a list of outcomes, failed attempts that were retried are left out.
	Outcomes []journal.Outcome
	// Since and Until limit the end of runs, or the time at which ticks were settled: Since <= end < Until. Zero means no limit. For a run in progress, Until
	// limits the start, and Since does not apply.
	Since, Until time.Time
	// Limit is the maximum number of records; 0 for all that are kept. If there are more, the records that ended first are left out.
	Limit int
	// Output is set to read the output tail of each run.
	Output bool
}

func (q HistoryRequest) includesRecord(r journal.Record) bool {
	at := r.Finished
	if r.Outcome == journal.OutcomeRunning {
		at = r.Started
	}
	switch {
	case q.Outcomes != nil && (r.Retried || !slices.Contains(q.Outcomes, r.Outcome)),
		r.Outcome != journal.OutcomeRunning && at.Before(q.Since),
		!q.Until.IsZero() && !at.Before(q.Until):
		return false
	}
	return true
}

// A History is a list of records of runs, and of ticks that were settled without a run.
type History struct {
	// Records are sorted by [journal.Record.When], from new to old. They are never nil.
	Records []journal.Record
	// More is set if there are more records than the limit.
	More bool
	// Damage is an error about damaged data in Redis; nil if there is none.
	Damage error
}

// History reads the newest records of runs, and of ticks that were settled without a run.
func (o *Operator) History(ctx context.Context, req HistoryRequest) (*History, error) {
	records, more, err := o.readRecords(ctx, req)
	h := &History{Records: append([]journal.Record{}, records...), More: more} // an empty list is [] in JSON, not null
	switch {
	case errors.Is(err, journal.ErrCorrupt) && len(records) == 0:
		return nil, fmt.Errorf("read the history of namespace %s: %w", o.cfg.Namespace, err)
	case errors.Is(err, journal.ErrCorrupt): // only the damaged records are missing
		h.Damage = err
	case err != nil:
		return nil, o.historyError(err)
	case len(records) == 0 && req.Job != "":
		return h, o.mayHaveLogs(ctx, req.Job, "")
	}
	if req.Output {
		return h, o.addOutput(ctx, h)
	}
	return h, nil
}

// readRecords reads the records of a request, and reports whether there are more. With an error about damaged data, the other records are valid.
func (o *Operator) readRecords(ctx context.Context, req HistoryRequest) (records []journal.Record, more bool, err error) {
	switch {
	case req.Outcomes != nil || !req.Since.IsZero() || !req.Until.IsZero():
		records, err = o.readFiltered(ctx, req)
	case req.Limit > 0:
		records, err = o.journal.Runs(ctx, req.Job, req.Limit+1, false)
	default:
		records, err = o.journal.Runs(ctx, req.Job, 0, false)
	}
	slices.SortStableFunc(records, func(a, b journal.Record) int { return endOf(b).Compare(endOf(a)) })
	if more = req.Limit > 0 && len(records) > req.Limit; more {
		records = records[:req.Limit]
	}
	slices.SortStableFunc(records, func(a, b journal.Record) int { return b.When().Compare(a.When()) })
	return records, more, err
}

// readFiltered reads one job after the other, so that it never holds the whole history of more than one job.
func (o *Operator) readFiltered(ctx context.Context, req HistoryRequest) (records []journal.Record, err error) {
	jobs := []string{req.Job}
	if req.Job == "" {
		if jobs, err = o.journal.RecordedJobs(ctx); err != nil {
			return nil, err
		}
	}
	var damage multierr.List
	for _, job := range jobs {
		all, err := o.journal.Runs(ctx, job, 0, false)
		if err != nil && !errors.Is(err, journal.ErrCorrupt) {
			return nil, err
		}
		damage.Add(err)
		records = append(records, slices.DeleteFunc(all, func(r journal.Record) bool { return !req.includesRecord(r) })...)
	}
	return records, damage.Err()
}

// endOf returns the end of a run, for sorting. For a run in progress, it returns a time later than any end, so that the run counts as the newest.
func endOf(r journal.Record) time.Time {
	if r.Outcome == journal.OutcomeRunning {
		return r.Started.AddDate(1000, 0, 0)
	}
	return r.Finished
}

func (o *Operator) addOutput(ctx context.Context, h *History) error {
	err := o.journal.AddOutput(ctx, h.Records)
	if errors.Is(err, journal.ErrCorrupt) {
		h.Damage = multierr.Join(h.Damage, err)
		return nil
	}
	if err != nil {
		return o.historyError(err)
	}
	return nil
}

// Recent reads the newest [RecentRuns] records per job, from new to old, without failed attempts that were retried. Damaged records are left out.
func (o *Operator) Recent(ctx context.Context, jobs []string) (map[string][]journal.Record, error) {
	recent, err := o.journal.Recent(ctx, jobs, RecentRuns)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, o.historyError(err)
	}
	for job, records := range recent {
		recent[job] = withoutTries(records)
	}
	return recent, nil
}

// Usual reads the usual duration of a job, the median of its newest runs that ended ok. Damaged data counts as unknown.
func (o *Operator) Usual(ctx context.Context, job string) (usual time.Duration, known bool, err error) {
	took, err := o.journal.Durations(ctx, []string{job})
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return 0, false, o.historyError(err)
	}
	usual, known = usualDuration(took[job])
	return usual, known, nil
}

// Failures reads the failures that ended within a window, the newest first. Damaged records are left out. With an error, the result has the failures that
// were read before the error.
func (o *Operator) Failures(ctx context.Context, req journal.FailuresRequest) (journal.FailuresFound, error) {
	found, err := o.journal.FailuresBetween(ctx, req)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return found, o.historyError(err)
	}
	return found, nil
}

// A LogsRequest selects the runs whose output to read.
type LogsRequest struct {
	Job string
	// Run is the id of one run; "" for the newest runs, at most Limit.
	Run   string
	Limit int
}

// Logs reads runs of a job with their output, as far as the history keeps it, from new to old.
func (o *Operator) Logs(ctx context.Context, req LogsRequest) ([]journal.Record, error) {
	if err := o.mayHaveLogs(ctx, req.Job, req.Run); err != nil {
		return nil, err
	}
	if req.Run != "" {
		r, err := o.mustFindRun(ctx, req.Job, req.Run)
		return []journal.Record{r}, err
	}
	all, err := o.journal.Runs(ctx, req.Job, 0, false)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, o.historyError(err)
	}
	runs := slices.DeleteFunc(append([]journal.Record{}, all...), func(r journal.Record) bool { return r.Started.IsZero() }) // an empty list is [] in JSON, not null
	runs = runs[:min(len(runs), max(req.Limit, 0))]
	if err := o.journal.AddOutput(ctx, runs); err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, o.historyError(err)
	}
	return runs, nil
}

// mayHaveLogs returns an error if a job is unknown and has no records in the history. If run is not "", it returns nil, because the caller looks up that run.
func (o *Operator) mayHaveLogs(ctx context.Context, job, run string) error {
	if run != "" {
		return nil
	}
	err := o.mustKnow(ctx, job)
	if err == nil {
		return nil
	}
	if records, _ := o.journal.Runs(ctx, job, 1, false); len(records) > 0 {
		return nil
	}
	return err
}

func (o *Operator) mustFindRun(ctx context.Context, job, id string) (journal.Record, error) {
	r, ok, err := o.journal.Run(ctx, job, id)
	switch {
	case errors.Is(err, journal.ErrCorrupt):
		return r, err
	case err != nil:
		return r, o.historyError(err)
	case !ok:
		return r, refusalError(ErrUnknownRun, "job %s has no run %q in the history", job, id)
	}
	return r, nil
}

const (
	// publishWait is the time for which AddPrinted waits for the output of a run in progress. A replica checks for followers every second.
	publishWait = 1500 * time.Millisecond
	// mostPrinted is the maximum length of output that is shown, in bytes. Older output is cut off.
	mostPrinted = 256 << 10
)

// A reading is the position of a reader in the output of a run.
type reading struct {
	attempt int
	offset  int64 // position in the output of the attempt, in bytes
}

// addChunk moves the position to the end of a chunk. It returns the lines that were not read yet, and the number of bytes that are missing before them.
func (p *reading) addChunk(c journal.Chunk) (missing int64, lines []journal.Line) {
	if c.Attempt < p.attempt {
		return 0, nil
	}
	if c.Attempt > p.attempt {
		*p = reading{attempt: c.Attempt}
	}
	at, lines := c.Offset, c.Lines
	for len(lines) > 0 && at < p.offset {
		at, lines = at+lines[0].Size(), lines[1:]
	}
	missing = max(at-p.offset, 0)
	p.offset = max(p.offset, c.Next())
	return missing, lines
}

// Printed asks the replicas to publish the output of a run in progress, and does not wait for them. It returns the newest part of the output that they have
// already published. Notes in brackets replace missing parts. answered is set if a replica has published anything, even if the run has printed nothing.
func (o *Operator) Printed(ctx context.Context, job, run string) (text string, answered bool, err error) {
	if err := o.journal.Follow(ctx, job); err != nil {
		return "", false, unavailableError("follow job "+job, err)
	}
	chunks, _, err := o.journal.Live(ctx, job, run, "")
	if err != nil {
		return "", false, unavailableError("follow job "+job, err)
	}
	cut, text := joinChunks(chunks)
	if cut > 0 {
		text = bracketNote(LeftOut(cut)) + text
	}
	return text, len(chunks) > 0, nil
}

// AddPrinted adds the output so far to the records of runs in progress. It asks the replicas to publish the output, and waits a moment. A run whose replica
// does not answer gets no output. A run that has printed nothing gets an empty output.
func (o *Operator) AddPrinted(ctx context.Context, records []journal.Record) error {
	type printing struct {
		*journal.Record
		place  string
		chunks []journal.Chunk
		news   bool // a replica has published output since the first reading
	}
	var runs []*printing
	for i := range records {
		if r := &records[i]; r.Outcome == journal.OutcomeRunning && len(runs) < maxFollowed {
			runs = append(runs, &printing{Record: r})
		}
	}
	began := time.Now()
	for first := true; len(runs) > 0; first = false {
		waits := false
		for _, r := range runs {
			if r.news {
				continue
			}
			if first {
				if err := o.journal.Follow(ctx, r.Job); err != nil {
					return unavailableError("follow job "+r.Job, err)
				}
			}
			chunks, place, err := o.journal.Live(ctx, r.Job, r.RunID, "")
			if err != nil {
				return unavailableError("follow job "+r.Job, err)
			}
			r.chunks, r.place, r.news = chunks, place, !first && place != r.place
			waits = waits || !r.news
		}
		if !waits || time.Since(began) > publishWait || ctx.Err() != nil {
			break
		}
		backoff.Sleep(ctx, followEvery)
	}
	for _, r := range runs {
		if len(r.chunks) > 0 {
			cut, text := joinChunks(r.chunks)
			r.OutputCut, r.Output = cut, &text
		}
	}
	return nil
}

// joinChunks joins the lines of chunks. It returns the last part, at most mostPrinted bytes, and the number of bytes before that part. Notes in brackets mark
// gaps.
func joinChunks(chunks []journal.Chunk) (cut int64, newest string) {
	var text strings.Builder
	var read reading
	for _, c := range chunks {
		missing, lines := read.addChunk(c)
		if missing > 0 && text.Len() == 0 {
			cut += missing
		} else if missing > 0 {
			text.WriteString(bracketNote(LeftOut(missing)))
		}
		for _, l := range lines {
			text.WriteString(l.Text + "\n")
		}
	}
	newest = text.String()
	if over := len(newest) - mostPrinted; over > 0 {
		over += strings.IndexByte(newest[over:], '\n') + 1
		return cut + int64(over), newest[over:]
	}
	return cut, newest
}

func bracketNote(note string) string { return "[" + note + "]\n" }
