package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/journal"
)

const (
	// followEvery is the default interval at which a follower checks for more output.
	followEvery = 200 * time.Millisecond
	// presentEvery is the interval at which a follower renews its mark in Redis. The mark shows replicas that the job is followed.
	presentEvery = 3 * time.Second
	// lastOutputDelay is the time for which a follower waits for the last output after a run has ended.
	lastOutputDelay = 2 * time.Second
	// outagePatience is the time without an answer from Redis after which a follower gives up. By default a Redis Cluster takes 15 s to detect the loss of a
	// master, and Sentinels take twice as long.
	outagePatience = time.Minute
)

// An OutputLine is a line that a run has printed.
type OutputLine struct {
	RunID  string `json:"run_id"`
	Stream string `json:"stream"` // stdout or stderr
	Line   string `json:"line"`   // without its newline

	Job     string    `json:"job"`
	Replica string    `json:"replica"`
	Slot    int       `json:"slot"`
	Time    time.Time `json:"time,omitzero"` // time of printing by the replica's clock; the end of the run if the line is from the history
}

// A Viewer receives the output of followed runs. Its functions are never called in parallel. Each of them may be nil.
type Viewer struct {
	// Begin receives the record of each run, once, before the run's first output.
	Begin func(journal.Record)
	// Line receives each line.
	Line func(OutputLine)
	// Note receives remarks about the output, such as the size of a gap.
	Note func(runID, text string)
}

// A FollowRequest selects the runs to follow.
type FollowRequest struct {
	Job string
	// Run is the id of one run; "" for all runs in progress and all that start later.
	Run string
	// Every is the interval at which to check for more output. Defaults to 200ms.
	Every time.Duration
}

// Follow passes the output of a job's runs to v while they print it. If req names a run, Follow returns when the run ends. Otherwise, it follows all runs until
// ctx ends, which is not an error. Output passes through Redis in chunks. If a run prints too fast for its replica, v receives a note about the missing bytes.
func (o *Operator) Follow(ctx context.Context, req FollowRequest, v Viewer) error {
	if err := o.mayHaveLogs(ctx, req.Job, req.Run); err != nil {
		return err
	}
	f := newFollower(o.journal, req.Job, v)
	f.every = cmp.Or(req.Every, f.every)
	if req.Run != "" {
		if _, err := o.mustFindRun(ctx, req.Job, req.Run); err != nil {
			return err
		}
		_, err := f.followRun(ctx, req.Run)
		return err
	}
	err := f.followAll(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// FollowJobs follows all runs of several jobs like [Operator.Follow], until ctx ends or one of the jobs cannot be followed.
func (o *Operator) FollowJobs(ctx context.Context, jobs []string, v Viewer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	v = v.oneAtATime()
	errs := make([]error, len(jobs))
	var following sync.WaitGroup
	for i, job := range jobs {
		following.Go(func() {
			if errs[i] = o.Follow(ctx, FollowRequest{Job: job}, v); errs[i] != nil {
				cancel()
			}
		})
	}
	following.Wait()
	return errors.Join(errs...)
}

func (v Viewer) withDefaults() Viewer {
	if v.Begin == nil {
		v.Begin = func(journal.Record) {}
	}
	if v.Line == nil {
		v.Line = func(OutputLine) {}
	}
	if v.Note == nil {
		v.Note = func(string, string) {}
	}
	return v
}

// oneAtATime returns a viewer that several goroutines may use. It calls v in one goroutine at a time.
func (v Viewer) oneAtATime() Viewer {
	v = v.withDefaults()
	var mu sync.Mutex
	return Viewer{
		Begin: func(r journal.Record) { mu.Lock(); defer mu.Unlock(); v.Begin(r) },
		Line:  func(l OutputLine) { mu.Lock(); defer mu.Unlock(); v.Line(l) },
		Note:  func(run, text string) { mu.Lock(); defer mu.Unlock(); v.Note(run, text) },
	}
}

// A follower passes on the output of a job's runs while they print it.
type follower struct {
	journal *journal.Journal
	job     string
	viewer  Viewer
	every   time.Duration

	marked time.Time // time of the last renewal of the mark
	heard  time.Time // time of the last answer from Redis
}

func newFollower(j *journal.Journal, job string, v Viewer) *follower {
	return &follower{journal: j, job: job, viewer: v.withDefaults(), every: followEvery}
}

type followedRun struct {
	id    string
	place string // position of the next chunk in Redis
	begun bool
	now   journal.Record // newest record of the run
	read  reading        // position in the output of the run
	tries int            // number of failed attempts that were reported to the viewer
	ended bool           // the last chunk has arrived
	shown bool           // some output was passed on
	last  journal.Record // final record; zero until the run has ended
	since time.Time      // time at which the follower first read the final record
}

// renewMark marks the job in Redis as followed. It writes at most once per presentEvery.
func (f *follower) renewMark(ctx context.Context) error {
	if time.Since(f.marked) < presentEvery {
		return nil
	}
	if err := f.journal.Follow(ctx, f.job); err != nil {
		return err
	}
	f.marked = time.Now()
	return nil
}

// tolerateOutage returns an error only if Redis has not answered for outagePatience. It ignores damaged data.
func (f *follower) tolerateOutage(err error) error {
	if err == nil || f.heard.IsZero() {
		f.heard = time.Now()
	}
	if err == nil || errors.Is(err, journal.ErrCorrupt) || time.Since(f.heard) < outagePatience {
		return nil
	}
	return unavailableError("follow job "+f.job, err)
}

// followRun passes on the output of a run until the run or ctx ends, and returns the final record.
func (f *follower) followRun(ctx context.Context, id string) (journal.Record, error) {
	r := &followedRun{id: id}
	for ; ctx.Err() == nil; backoff.Sleep(ctx, f.every) {
		over, err := f.showOutput(ctx, r)
		if err := f.tolerateOutage(err); err != nil || over {
			return r.last, err
		}
	}
	return r.last, context.Cause(ctx)
}

// showOutput passes on the new output of a run, and reports whether the output is complete.
func (f *follower) showOutput(ctx context.Context, r *followedRun) (over bool, err error) {
	if err := f.renewMark(ctx); err != nil {
		return false, err
	}
	// The record is read before the output. If the record shows that the run has ended, the output is complete in Redis, or soon will be.
	record, known, err := f.journal.Run(ctx, f.job, r.id)
	if err != nil {
		return false, err
	}
	r.now = record
	if err := f.noteTries(ctx, r); err != nil {
		return false, err
	}
	if err := f.showNew(ctx, r); err != nil || !known || record.Outcome == journal.OutcomeRunning {
		return false, err
	}
	r.last = record
	if r.since.IsZero() {
		r.since = time.Now()
	}
	switch {
	case r.ended, !r.shown && time.Since(r.since) > lastOutputDelay/2:
	case time.Since(r.since) <= lastOutputDelay:
		return false, nil
	default:
		f.announceRun(r)
		f.viewer.Note(r.id, "its last output is missing; see history --output")
	}
	f.showKept(r)
	return true, nil
}

// noteTries reports a failed attempt to the viewer when the next attempt begins. Otherwise, a viewer might see nothing of a run with retries for minutes.
func (f *follower) noteTries(ctx context.Context, r *followedRun) error {
	if r.now.FailedTries <= r.tries || r.now.Outcome != journal.OutcomeRunning {
		return nil
	}
	failed, known, err := f.journal.Run(ctx, f.job, fmt.Sprintf("%s.%d", r.id, r.now.Attempt-1))
	if err != nil {
		return err
	}
	r.tries = r.now.FailedTries
	how := "failed"
	if known {
		how = cmp.Or(string(failed.Reason), string(failed.Outcome))
	}
	f.announceRun(r)
	f.viewer.Note(r.id, fmt.Sprintf("attempt %d: %s; attempt %d has started", r.now.Attempt-1, how, r.now.Attempt))
	return nil
}

func (f *follower) showNew(ctx context.Context, r *followedRun) error {
	chunks, place, err := f.journal.Live(ctx, f.job, r.id, r.place)
	if err != nil {
		return err
	}
	r.place = place
	for _, c := range chunks {
		missing, lines := r.read.addChunk(c)
		if missing > 0 || len(lines) > 0 || c.End {
			f.announceRun(r)
		}
		if missing > 0 {
			f.viewer.Note(r.id, LeftOut(missing))
		}
		for _, line := range lines {
			f.showLine(r, line)
		}
		r.shown, r.ended = r.shown || missing > 0 || len(lines) > 0 || c.End, c.End
	}
	return nil
}

// LeftOut returns the text that replaces n missing bytes of output.
func LeftOut(n int64) string {
	const kilo = 1000
	switch {
	case n < kilo:
		return fmt.Sprintf("… %d bytes left out …", n)
	case n < kilo*kilo:
		return fmt.Sprintf("… %d kB left out …", n/kilo)
	}
	return fmt.Sprintf("… %d MB left out …", n/kilo/kilo)
}

func (f *follower) announceRun(r *followedRun) {
	if !r.begun {
		r.begun = true
		f.viewer.Begin(r.now)
	}
}

func (f *follower) showLine(r *followedRun, line journal.Line) {
	l := OutputLine{RunID: r.id, Stream: "stdout", Line: line.Text, Job: f.job, Replica: r.now.Replica}
	if line.Stderr {
		l.Stream = "stderr"
	}
	if r.now.Slot != nil {
		l.Slot = *r.now.Slot
	}
	if line.At > 0 {
		l.Time = time.UnixMilli(line.At).UTC()
	}
	f.viewer.Line(l)
}

// showKept passes on the output of the history if no other output was passed on, because the run ended before its replica noticed this follower.
func (f *follower) showKept(r *followedRun) {
	if r.shown || r.last.Output == nil {
		return
	}
	f.announceRun(r)
	if r.last.OutputCut > 0 {
		f.viewer.Note(r.id, LeftOut(r.last.OutputCut))
	}
	for line := range strings.Lines(*r.last.Output) {
		f.showLine(r, journal.Line{Text: strings.TrimSuffix(line, "\n"), At: r.last.Finished.UnixMilli()})
	}
}

// maxFollowed is the number of newest runs that a follower checks. The output of more runs at once would be unreadable.
const maxFollowed = 50

// followAll follows the runs of the job that are in progress, and all that start later.
func (f *follower) followAll(ctx context.Context) error {
	known := map[string]*followedRun{} // nil for runs that are over
	for first := true; ctx.Err() == nil; backoff.Sleep(ctx, f.every) {
		err := f.renewMark(ctx)
		if err == nil {
			err = f.lookAtAll(ctx, known, first)
			first = first && err != nil
		}
		if err := f.tolerateOutage(err); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// lookAtAll passes on the new output of all runs. If first is set, it ignores runs that have already ended, and later calls ignore them too.
func (f *follower) lookAtAll(ctx context.Context, known map[string]*followedRun, first bool) error {
	records, err := f.journal.Runs(ctx, f.job, maxFollowed, false)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return err
	}
	kept := map[string]bool{}
	for _, r := range records {
		kept[r.RunID] = true
		if _, ok := known[r.RunID]; ok || r.Started.IsZero() || isTry(r) {
			continue
		}
		known[r.RunID] = &followedRun{id: r.RunID}
		if first && r.Outcome != journal.OutcomeRunning {
			known[r.RunID] = nil
		}
	}
	for id, r := range known {
		if r == nil {
			if !kept[id] {
				delete(known, id)
			}
			continue
		}
		over, err := f.showOutput(ctx, r)
		if err != nil {
			return err
		}
		if over {
			known[id] = nil
		}
	}
	return nil
}

// isTry reports whether a record belongs to a failed attempt that was retried. The output of such an attempt is part of the output of the run.
func isTry(r journal.Record) bool { return strings.HasSuffix(r.RunID, fmt.Sprintf(".%d", r.Attempt)) }
