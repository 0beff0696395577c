package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/journal"
)

const (
	// followEvery is how often a follower looks for more output.
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
}

// Viewer gets what followed runs print, one call at a time. Each function may be nil.
type Viewer struct {
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
}

// Follow shows the output of a job's runs while they print it: one run until it has ended, or all until ctx ends, which is then no error. Output goes
// through Redis in pieces; of a run that prints faster than that, bytes are left out, with a note.
func (o *Operator) Follow(ctx context.Context, req FollowRequest, v Viewer) error {
	if err := o.mayHaveLogs(ctx, req.Job, req.Run); err != nil {
		return err
	}
	f := newFollower(o.journal, req.Job, v)
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

// follower shows the output of a job's runs while they print it.
type follower struct {
	journal *journal.Journal
	job     string
	viewer  Viewer

	marked time.Time // when the mark was last renewed
	heard  time.Time // when Redis last answered
}

func newFollower(j *journal.Journal, job string, v Viewer) *follower {
	if v.Line == nil {
		v.Line = func(OutputLine) {}
	}
	if v.Note == nil {
		v.Note = func(string, string) {}
	}
	return &follower{journal: j, job: job, viewer: v}
}

// followedRun is a run that is shown.
type followedRun struct {
	id    string
	place string         // in its chunks
	chunk int64          // the number of the last one
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
	for ; ctx.Err() == nil; backoff.Sleep(ctx, followEvery) {
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
		f.viewer.Note(r.id, "its last output is missing; see history --output")
	}
	f.showKept(r)
	return true, nil
}

// showNew shows the chunks that are new.
func (f *follower) showNew(ctx context.Context, r *followedRun) error {
	chunks, place, err := f.journal.Live(ctx, f.job, r.id, r.place)
	if err != nil {
		return err
	}
	r.place = place
	for _, c := range chunks {
		if r.chunk > 0 && c.Number > r.chunk+1 {
			f.viewer.Note(r.id, "some output left out")
		}
		if r.chunk = c.Number; c.Lost > 0 {
			f.viewer.Note(r.id, fmt.Sprintf("%d bytes left out", c.Lost))
		}
		for _, line := range c.Lines {
			f.show(r.id, line)
		}
		r.shown, r.ended = true, c.End
	}
	return nil
}

func (f *follower) show(id string, line journal.Line) {
	stream := "stdout"
	if line.Stderr {
		stream = "stderr"
	}
	f.viewer.Line(OutputLine{id, stream, line.Text})
}

// showKept shows what the history has of a run that was over before a replica knew of this follower.
func (f *follower) showKept(r *followedRun) {
	if r.shown || r.last.Output == nil {
		return
	}
	for line := range strings.Lines(*r.last.Output) {
		f.show(r.id, journal.Line{Text: strings.TrimSuffix(line, "\n")})
	}
}
