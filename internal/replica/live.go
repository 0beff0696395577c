package replica

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/logging"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/scheduler"
)

const (
	// liveEvery is how often output is published while it has followers.
	liveEvery = 250 * time.Millisecond
	// liveAtMost is the least time between two times: of each run at most maxPending bytes in so long.
	liveAtMost = 50 * time.Millisecond
	// maxPending is how many bytes of a run wait to be published, maxKept how many are kept for followers that come later; each line costs lineCost
	// besides.
	maxPending = 256 << 10
	maxKept    = 64 << 10
	// wholeEvery is how many chunks are published until one has all lines that are kept: Redis has only the newest chunks, and a later follower reads those.
	wholeEvery = journal.LiveChunks / 2
	lineCost   = 32
	// lookForFollowers is how often a replica with runs looks for followers.
	lookForFollowers = time.Second
	// followedFor is how long a run counts as followed after a follower was last found: a failover may lose the follower's mark, and the follower sets
	// it again when it has found the new master.
	followedFor = 10 * time.Second
)

// liveOutput publishes the output of runs to their followers, through Redis. It never holds up a run: output that can't be published in time is left
// out, and followers get its size.
type liveOutput struct {
	journal *journal.Journal
	log     hclog.Logger
	wake    notice

	mu   sync.Mutex
	runs []*liveRun
}

// liveRun is a try of a run. All its fields belong to the mutex of its liveOutput. Offsets count the bytes that the try has printed.
type liveRun struct {
	journal.LiveRun
	attempt   int
	manual    bool // the requester may be about to follow it
	lines     []journal.Line
	size      int   // of the lines, with their costs
	start     int64 // the offset of the first of the lines
	published int64 // the offset up to which they were published; -1 if Redis has nothing of the try
	end       int64 // the offset behind the last one
	chunks    int   // that were published since the last one with all lines
	checked   bool  // a look has found out whether it is followed
	followed  bool
	seen      time.Time // when a follower was found last
	ended     bool
}

func newLiveOutput(j *journal.Journal, log hclog.Logger) *liveOutput {
	return &liveOutput{journal: j, log: log, wake: make(chan struct{}, 1)}
}

// sharedOutput goes to the followers of the run, and to the log if the job wants that.
type sharedOutput struct {
	live *liveOutput
	run  *scheduler.Run
	log  *logging.Output // nil if it does not
}

// Line takes a line.
func (o *sharedOutput) Line(stream string, line []byte) {
	if o.log != nil {
		o.log.Line(stream, line)
	}
	o.live.add(o.run, journal.Line{Stderr: stream == "stderr", Text: string(line), At: time.Now().UnixMilli()})
}

// End ends the output.
func (o *sharedOutput) End() {
	if o.log != nil {
		o.log.End()
	}
}

// liveRunner reports the begin and the end of its runs.
type liveRunner struct {
	scheduler.Runner
	live *liveOutput
}

// Run runs the job.
func (r liveRunner) Run(ctx context.Context, run *scheduler.Run) scheduler.Result {
	defer r.live.end(r.live.begin(run))
	return r.Runner.Run(ctx, run)
}

func (l *liveOutput) begin(run *scheduler.Run) *liveRun {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &liveRun{LiveRun: journal.LiveRun{Job: run.Job, ID: run.ID}, attempt: run.Attempt, manual: run.Trigger == "manual", published: -1}
	if l.runs = append(l.runs, r); r.manual || len(l.runs) == 1 {
		l.nudge()
	}
	return r
}

// end forgets a run, unless the rest of its output is to be published.
func (l *liveOutput) end(r *liveRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.ended = true
	if r.followed || r.manual && !r.checked {
		l.nudge()
		return
	}
	l.remove(r)
}

func (l *liveOutput) remove(r *liveRun) {
	l.runs = slices.DeleteFunc(l.runs, func(o *liveRun) bool { return o == r })
}

// nudge has the publisher look at once.
func (l *liveOutput) nudge() { l.wake.give() }

// add takes a line of a run that is under way. The newest ones are kept.
func (l *liveOutput) add(run *scheduler.Run, line journal.Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.runs, func(r *liveRun) bool { return r.ID == run.ID && !r.ended })
	if i < 0 {
		return
	}
	r := l.runs[i]
	r.lines, r.size, r.end = append(r.lines, line), r.size+len(line.Text)+lineCost, r.end+line.Size()
	most := maxKept
	if r.followed {
		most = maxPending
	}
	r.drop(most)
	if r.followed && r.size > maxPending/2 {
		l.nudge()
	}
}

// drop drops the oldest lines beyond a size.
func (r *liveRun) drop(most int) {
	for r.size > most {
		first := r.lines[0]
		r.lines, r.size, r.start = r.lines[1:], r.size-len(first.Text)-lineCost, r.start+first.Size()
	}
}

// run publishes until ctx ends, and then the rest, as far as Redis takes it in time.
func (l *liveOutput) run(ctx context.Context) {
	timer, rest := time.NewTimer(time.Hour), time.NewTimer(0)
	defer timer.Stop()
	defer rest.Stop()
	var looked time.Time
	for {
		select { // however often it is nudged
		case <-ctx.Done():
		case <-rest.C:
		}
		rest.Reset(liveAtMost)
		if pause, any := l.pause(); any {
			timer.Reset(pause)
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-timer.C:
		}
		if ctx.Err() != nil { // whatever else is due: no request of this context takes output any more
			l.publishLast(ctx)
			return
		}
		if l.unchecked() || time.Since(looked) >= lookForFollowers {
			l.look(ctx)
			looked = time.Now()
		}
		l.publish(ctx)
	}
}

// publishLast has one deadline for all runs together: the drain is over.
func (l *liveOutput) publishLast(ctx context.Context) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisconn.Timeout)
	defer cancel()
	l.publish(last)
}

// pause is how long the publisher may rest; any returns whether there is a run at all.
func (l *liveOutput) pause() (pause time.Duration, any bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	pause = lookForFollowers
	for _, r := range l.runs {
		if r.followed {
			pause = liveEvery
		}
	}
	return pause, len(l.runs) > 0
}

// unchecked returns whether there is a run whose followers are not known yet.
func (l *liveOutput) unchecked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.runs, func(r *liveRun) bool { return r.manual && !r.checked })
}

// look finds out which runs are followed. After an error, and for a while without a follower, followed runs stay followed; the others count as not followed.
// Nothing prolongs the time of a run that has ended: Redis may take no output for hours.
func (l *liveOutput) look(ctx context.Context) {
	l.mu.Lock()
	runs := slices.Clone(l.runs)
	l.mu.Unlock()
	var jobs []string
	for _, r := range runs {
		jobs = append(jobs, r.Job)
	}
	slices.Sort(jobs)
	if jobs = slices.Compact(jobs); len(jobs) == 0 {
		return
	}
	followed, err := l.journal.Followed(ctx, jobs)
	var missing []journal.LiveRun
	if err == nil {
		missing, err = l.journal.KeepLive(ctx, publishedOf(runs, followed))
	}
	if err != nil {
		l.log.Debug("cannot read which runs are followed", "error", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range runs {
		if slices.Contains(missing, r.LiveRun) {
			r.published = -1
		}
		if (slices.Contains(followed, r.Job) || r.followed && err != nil) && !(r.ended && r.checked) {
			r.seen = time.Now()
		}
		r.checked = true
		r.followed = !r.seen.IsZero() && time.Since(r.seen) < followedFor
		if r.ended && !r.followed {
			l.remove(r)
		}
	}
}

// publishedOf returns those of runs whose jobs are followed.
func publishedOf(runs []*liveRun, followed []string) (list []journal.LiveRun) {
	for _, r := range runs {
		if slices.Contains(followed, r.Job) {
			list = append(list, r.LiveRun)
		}
	}
	return list
}

// publish writes the new output of the followed runs. A chunk that was not written, or without an answer, is part of the next one. So a run that has ended
// stays until its last chunk is written, or [followedFor] is over.
func (l *liveOutput) publish(ctx context.Context) {
	l.mu.Lock()
	runs := slices.Clone(l.runs)
	l.mu.Unlock()
	for _, r := range runs {
		c, some := l.take(r)
		if !some {
			continue
		}
		first, err := l.journal.Publish(ctx, r.Job, r.ID, c)
		if err != nil {
			l.log.Debug("output not published", "job", r.Job, "run_id", r.ID, "error", err)
			continue
		}
		l.written(r, c, first)
	}
}

// take returns the new output of a run for publication, if there is any. It returns all kept output if Redis has none, or if the stream is about to trim the
// last full chunk. The chunk with End is the last. A run without output has an empty chunk, by which followers know that a replica has seen them.
func (l *liveOutput) take(r *liveRun) (c journal.Chunk, some bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !r.followed || r.published == r.end && !r.ended {
		return c, false
	}
	r.chunks++
	from := max(r.start, r.published)
	if r.published < 0 || r.chunks >= wholeEvery {
		from, r.chunks = r.start, 0
	}
	n := len(r.lines)
	for at := r.end; at > from; n-- {
		at -= r.lines[n-1].Size()
	}
	return journal.Chunk{Attempt: r.attempt, Offset: from, Lines: slices.Clip(r.lines[n:]), End: r.ended}, true
}

// written notes that a chunk was published, and whether it is the first in Redis. From then on the kept lines are for followers that come later.
func (l *liveOutput) written(r *liveRun, c journal.Chunk, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.published = c.Next(); first && c.Offset > r.start { // Redis has lost those before it
		r.published = -1
		return
	}
	if r.published == r.end {
		r.drop(maxKept)
	}
	if c.End {
		l.remove(r)
	}
}
