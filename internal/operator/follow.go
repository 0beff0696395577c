package operator

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
	// followEvery is how often a follower looks for more output, unless its caller says.
	followEvery = 200 * time.Millisecond
	// presentEvery is how often a follower renews the mark by which replicas know of it.
	presentEvery = 3 * time.Second
	// lastOutputDelay is how long after the end of a run a follower waits for the rest of its output.
	lastOutputDelay = 2 * time.Second
	// outagePatience is how long Redis may be away before a follower gives up: a Cluster takes a quarter of a minute to find that a master is gone, unless
	// it is configured otherwise, and Sentinels take twice as long.
	outagePatience = time.Minute
)

// OutputLine is a line that a run has printed.
type OutputLine struct {
	RunID  string `json:"run_id"`
	Stream string `json:"stream"` // stdout or stderr
	Line   string `json:"line"`   // without its newline

	Job     string    `json:"job"`
	Replica string    `json:"replica"`
	Slot    int       `json:"slot"`
	Time    time.Time `json:"time,omitzero"` // when it was printed, by the replica's clock; of output from the history the end of the run
}

// Viewer gets what followed runs print, one call at a time. Each function may be nil.
type Viewer struct {
	// Begin gets each run before its first output, as its record is then.
	Begin func(journal.Record)
	// Line gets each line.
	Line func(OutputLine)
	// Note gets remarks on the output, such as the size of a gap in it.
	Note func(runID, text string)
}

// FollowRequest says which runs to follow.
type FollowRequest struct {
	Job string
	// Run is the id of one run; "" for all that have not ended, and those that come.
	Run string
	// Every is how often to look for more output. Defaults to 200ms.
	Every time.Duration
}

// Follow shows the output of a job's runs while they print it: one run until it has ended, or all until ctx ends, which is then no error. Output goes
// through Redis in pieces; of a run that prints faster than that, bytes are left out, with a note.
func (o *Operator) Follow(ctx context.Context, req FollowRequest, v Viewer) error {
	if err := o.mayHaveLogs(ctx, req.Job, req.Run); err != nil {
		return err
	}
	f := newFollower(o.journal, req.Job, v)
	f.every = cmp.Or(req.Every, f.every)
	if req.Run != "" {
		if _, err := o.run(ctx, req.Job, req.Run); err != nil {
			return err
		}
		_, err := f.follow(ctx, req.Run)
		return err
	}
	err := f.followAll(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// FollowJobs is [Operator.Follow] for all runs of several jobs, until ctx ends or one of the jobs cannot be followed.
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

// complete sets the functions that are not.
func (v Viewer) complete() Viewer {
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

// oneAtATime is a viewer for several goroutines.
func (v Viewer) oneAtATime() Viewer {
	v = v.complete()
	var mu sync.Mutex
	return Viewer{
		Begin: func(r journal.Record) { mu.Lock(); defer mu.Unlock(); v.Begin(r) },
		Line:  func(l OutputLine) { mu.Lock(); defer mu.Unlock(); v.Line(l) },
		Note:  func(run, text string) { mu.Lock(); defer mu.Unlock(); v.Note(run, text) },
	}
}

// follower shows the output of a job's runs while they print it.
type follower struct {
	journal *journal.Journal
	job     string
	viewer  Viewer
	every   time.Duration // how often it looks

	marked time.Time // when the mark was last renewed
	heard  time.Time // when Redis last answered
}

func newFollower(j *journal.Journal, job string, v Viewer) *follower {
	return &follower{journal: j, job: job, viewer: v.complete(), every: followEvery}
}

// followedRun is a run that is shown.
type followedRun struct {
	id    string
	place string         // in its chunks
	begun bool           // the viewer knows of it
	now   journal.Record // its newest record
	read  reading        // its position
	tries int            // the number of failed tries that the viewer knows of
	ended bool           // the last chunk has arrived
	shown bool           // some output was
	last  journal.Record // once it has ended
	since time.Time      // when it was first known to have ended
}

// mark announces a follower to the replicas, if it is time to.
func (f *follower) mark(ctx context.Context) error {
	if time.Since(f.marked) < presentEvery {
		return nil
	}
	if err := f.journal.Follow(ctx, f.job); err != nil {
		return err
	}
	f.marked = time.Now()
	return nil
}

// tolerate lets Redis be away for a while.
func (f *follower) tolerate(err error) error {
	if err == nil || f.heard.IsZero() {
		f.heard = time.Now()
	}
	if err == nil || errors.Is(err, journal.ErrCorrupt) || time.Since(f.heard) < outagePatience {
		return nil
	}
	return unavailable("follow job "+f.job, err)
}

// follow shows a run until it has ended, which its record then says, or ctx has.
func (f *follower) follow(ctx context.Context, id string) (journal.Record, error) {
	r := &followedRun{id: id}
	for ; ctx.Err() == nil; backoff.Sleep(ctx, f.every) {
		over, err := f.look(ctx, r)
		if err := f.tolerate(err); err != nil || over {
			return r.last, err
		}
	}
	return r.last, context.Cause(ctx)
}

// look shows the new output of a run, and returns whether all of it has been shown.
func (f *follower) look(ctx context.Context, r *followedRun) (over bool, err error) {
	if err := f.mark(ctx); err != nil {
		return false, err
	}
	record, known, err := f.journal.Run(ctx, f.job, r.id) // read before the output: all of it is in Redis when the run has ended, or soon after
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
		f.begin(r)
		f.viewer.Note(r.id, "its last output is missing; see history --output")
	}
	f.showKept(r)
	return true, nil
}

// noteTries remarks on a try that has failed when the next one has begun: a run that is tried again may print nothing for minutes.
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
		how = cmp.Or(failed.Reason, failed.Outcome)
	}
	f.begin(r)
	f.viewer.Note(r.id, fmt.Sprintf("attempt %d: %s; attempt %d has started", r.now.Attempt-1, how, r.now.Attempt))
	return nil
}

// showNew shows the chunks that are new.
func (f *follower) showNew(ctx context.Context, r *followedRun) error {
	chunks, place, err := f.journal.Live(ctx, f.job, r.id, r.place)
	if err != nil {
		return err
	}
	r.place = place
	for _, c := range chunks {
		missing, lines := r.read.add(c)
		if missing > 0 || len(lines) > 0 || c.End {
			f.begin(r)
		}
		if missing > 0 {
			f.viewer.Note(r.id, LeftOut(missing))
		}
		for _, line := range lines {
			f.show(r, line)
		}
		r.shown, r.ended = r.shown || missing > 0 || len(lines) > 0 || c.End, c.End
	}
	return nil
}

// LeftOut stands in the place of so many bytes of output that are missing.
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

// begin has the viewer know of a run.
func (f *follower) begin(r *followedRun) {
	if !r.begun {
		r.begun = true
		f.viewer.Begin(r.now)
	}
}

func (f *follower) show(r *followedRun, line journal.Line) {
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

// showKept shows what the history has of a run that was over before a replica knew of this follower.
func (f *follower) showKept(r *followedRun) {
	if r.shown || r.last.Output == nil {
		return
	}
	f.begin(r)
	if r.last.OutputCut > 0 {
		f.viewer.Note(r.id, LeftOut(r.last.OutputCut))
	}
	for line := range strings.Lines(*r.last.Output) {
		f.show(r, journal.Line{Text: strings.TrimSuffix(line, "\n"), At: r.last.Finished.UnixMilli()})
	}
}
