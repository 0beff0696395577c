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
	"github.com/cronclave/cronclave/internal/web/dashboard"
	"github.com/cronclave/cronclave/scheduler"
)

const (
	// liveEvery is the interval at which output is published while it has followers.
	liveEvery = 250 * time.Millisecond
	// liveAtMost is the minimum time between two publications. If a run prints more than maxPending bytes in that time, output is left out.
	liveAtMost = 50 * time.Millisecond
	// maxPending is the number of bytes of a run that may wait to be published. maxKept is the number of bytes that are kept for later followers. Each line costs
	// lineCost bytes more than its text.
	maxPending = 256 << 10
	maxKept    = 64 << 10
	// wholeEvery is the number of chunks after which a chunk repeats all kept lines, for later followers: Redis keeps only the newest LiveChunks chunks.
	wholeEvery = journal.LiveChunks / 2
	lineCost   = 32
	// lookForFollowers is the interval at which a replica with runs checks for followers.
	lookForFollowers = time.Second
	// followedFor is the time for which a run counts as followed after a follower was last found. A failover may lose the key that marks the job as
	// followed, and the follower writes this key again only after it has found the new master.
	followedFor = 10 * time.Second
)

// liveOutput publishes the output of runs to followers, through Redis. It never delays a run: output that can't be published in time is left out, and followers
// receive the size of the gap.
type liveOutput struct {
	journal *journal.Journal
	log     hclog.Logger
	wake    notice

	mu   sync.Mutex
	runs []*liveRun
}

// A liveRun is one attempt of a run. The mutex of its liveOutput guards all fields. Offsets count the bytes that the attempt has printed.
type liveRun struct {
	journal.LiveRun
	attempt   int
	began     time.Time
	manual    bool // triggered by a user, so a follower may come soon
	lines     []journal.Line
	size      int   // size of the lines in bytes, with lineCost for each
	start     int64 // offset of the first line
	published int64 // offset up to which lines were published; -1 if Redis has nothing of the attempt
	end       int64 // offset after the last line
	chunks    int   // number of chunks published since the last chunk with all lines
	checked   bool  // a check for followers has been made
	followed  bool
	seen      time.Time // time at which a follower was last found
	ended     bool
}

func newLiveOutput(j *journal.Journal, log hclog.Logger) *liveOutput {
	return &liveOutput{journal: j, log: log, wake: make(chan struct{}, 1)}
}

// sharedOutput passes lines to the followers of a run, and to the log if the job's configuration asks for that.
type sharedOutput struct {
	live *liveOutput
	run  *scheduler.Run
	log  *logging.Output // nil if the job does not log its output
}

// Line passes a line on to the followers and to the log.
func (o *sharedOutput) Line(stream string, line []byte) {
	if o.log != nil {
		o.log.Line(stream, line)
	}
	o.live.addLine(o.run, journal.Line{Stderr: stream == "stderr", Text: string(line), At: time.Now().UnixMilli()})
}

// End ends the output.
func (o *sharedOutput) End() {
	if o.log != nil {
		o.log.End()
	}
}

func (l *liveOutput) addRun(run *scheduler.Run) *liveRun {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &liveRun{LiveRun: journal.LiveRun{Job: run.Job, ID: run.ID}, attempt: run.Attempt, began: time.Now(), manual: run.Trigger == "manual", published: -1}
	if l.runs = append(l.runs, r); r.manual || len(l.runs) == 1 {
		l.wakePublisher()
	}
	return r
}

// localRuns returns the runs in progress, for pages while Redis is away.
func (l *liveOutput) localRuns() (runs []dashboard.LocalRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.runs {
		if r.ended {
			continue
		}
		of := dashboard.LocalRun{Job: r.Job, RunID: r.ID, Began: r.began}
		if n := len(r.lines); n > 0 {
			of.LastLine = r.lines[n-1].Text
		}
		runs = append(runs, of)
	}
	return runs
}

// endRun marks a run as ended. It removes the run at once, unless followers may still need the rest of its output.
func (l *liveOutput) endRun(r *liveRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.ended = true
	if r.followed || r.manual && !r.checked {
		l.wakePublisher()
		return
	}
	l.removeRun(r)
}

func (l *liveOutput) removeRun(r *liveRun) {
	l.runs = slices.DeleteFunc(l.runs, func(o *liveRun) bool { return o == r })
}

func (l *liveOutput) wakePublisher() { l.wake.give() }

// addLine adds a line to a run in progress. Old lines are dropped if there are too many.
func (l *liveOutput) addLine(run *scheduler.Run, line journal.Line) {
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
	r.dropOldest(most)
	if r.followed && r.size > maxPending/2 {
		l.wakePublisher()
	}
}

func (r *liveRun) dropOldest(most int) {
	for r.size > most {
		first := r.lines[0]
		r.lines, r.size, r.start = r.lines[1:], r.size-len(first.Text)-lineCost, r.start+first.Size()
	}
}

// run publishes output until ctx ends. Then it publishes the rest, if Redis accepts it in time.
func (l *liveOutput) run(ctx context.Context) {
	timer, rest := time.NewTimer(time.Hour), time.NewTimer(0)
	defer timer.Stop()
	defer rest.Stop()
	var looked time.Time
	for {
		select { // limits the rate of publications
		case <-ctx.Done():
		case <-rest.C:
		}
		rest.Reset(liveAtMost)
		if pause, any := l.nextPause(); any {
			timer.Reset(pause)
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-timer.C:
		}
		if ctx.Err() != nil { // publishLast has a time limit of its own
			l.publishLast(ctx)
			return
		}
		if l.hasUnchecked() || time.Since(looked) >= lookForFollowers {
			l.findFollowers(ctx)
			looked = time.Now()
		}
		l.publishRuns(ctx)
	}
}

// publishLast publishes the rest of the output. All runs share one time limit, because the drain is over and the process is about to end.
func (l *liveOutput) publishLast(ctx context.Context) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisconn.Timeout)
	defer cancel()
	l.publishRuns(last)
}

// nextPause returns the time until the publisher must check again, and whether there are runs.
func (l *liveOutput) nextPause() (pause time.Duration, any bool) {
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

// hasUnchecked reports whether a run that may have a follower was not yet checked for followers.
func (l *liveOutput) hasUnchecked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.runs, func(r *liveRun) bool { return r.manual && !r.checked })
}

// findFollowers checks which runs are followed. A run counts as followed for followedFor after the last check that found a follower. A failed check extends this
// time for a followed run. After the end of a run, only the first check of the run can extend the time. Otherwise a long outage of Redis would keep the run in
// memory.
func (l *liveOutput) findFollowers(ctx context.Context) {
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
			l.removeRun(r)
		}
	}
}

// publishedOf returns the runs whose jobs are followed.
func publishedOf(runs []*liveRun, followed []string) (list []journal.LiveRun) {
	for _, r := range runs {
		if slices.Contains(followed, r.Job) {
			list = append(list, r.LiveRun)
		}
	}
	return list
}

// publishRuns publishes the new output of the followed runs. If a chunk was not written, or Redis did not answer, the next chunk repeats its lines. So a run
// that has ended is kept until its last chunk is written, or for [followedFor].
func (l *liveOutput) publishRuns(ctx context.Context) {
	l.mu.Lock()
	runs := slices.Clone(l.runs)
	l.mu.Unlock()
	for _, r := range runs {
		c, some := l.takeChunk(r)
		if !some {
			continue
		}
		first, err := l.journal.Publish(ctx, r.Job, r.ID, c)
		if err != nil {
			l.log.Debug("output not published", "job", r.Job, "run_id", r.ID, "error", err)
			continue
		}
		l.markWritten(r, c, first)
	}
}

// takeChunk returns the output of a run to publish, if there is any. A chunk has the new lines, or all kept lines if Redis has none. Every wholeEvery-th chunk also
// has all kept lines, so that Redis always stores a chunk with all of them. The final chunk has End set. A run without output gets an empty chunk, which shows
// followers that a replica has noticed them.
func (l *liveOutput) takeChunk(r *liveRun) (c journal.Chunk, some bool) {
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

// markWritten records that a chunk was published. first is set if Redis had no earlier chunk of the run. If all lines are published, only maxKept bytes stay.
func (l *liveOutput) markWritten(r *liveRun, c journal.Chunk, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.published = c.Next(); first && c.Offset > r.start { // Redis has lost the lines before this chunk
		r.published = -1
		return
	}
	if r.published == r.end {
		r.dropOldest(maxKept)
	}
	if c.End {
		l.removeRun(r)
	}
}

// A notice wakes a goroutine. It is a channel of capacity 1, so all notices that arrive before the goroutine wakes count as one.
type notice chan struct{}

func (n notice) give() {
	select {
	case n <- struct{}{}:
	default:
	}
}
