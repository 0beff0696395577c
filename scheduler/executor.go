package scheduler

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/backoff"
)

// An executor executes granted runs. It starts a run, records the start, stops the run in time if necessary, waits until nothing of the run is left,
// records the end, and releases the lease, always in this order.
type executor struct {
	replica  string
	now      func() time.Time
	log      hclog.Logger
	recorder *recorder
	streak   func(ctx context.Context, job string) []any // may be nil
	pools    Pools
	events   GrantEvents
	breaker  breaker
	backoffs startBackoffs
	refused  atomic.Int32 // counts invalid phase changes, which are bugs

	draining context.Context     // ends when the drain begins
	drain    func(time.Duration) // begins the drain
	limit    time.Time           // the end of the drain; read after draining has ended
	abort    context.Context     // ends when runs must be killed at once
	parting  context.Context     // ends lastWords after the drain or the abort; from then on nothing waits for records
}

func newExecutor(cfg Config, now func() time.Time, abort context.Context) *executor {
	x := &executor{replica: cfg.Replica, now: now, log: cfg.Logger, abort: abort,
		recorder: newRecorder(cfg.Journal, cfg.Logger), streak: cfg.Streak, pools: cfg.Pools, events: cfg.GrantEvents}
	draining, begin := context.WithCancel(context.Background())
	parting, part := context.WithCancel(context.Background())
	x.draining, x.parting = draining, parting
	x.drain = func(timeout time.Duration) {
		x.limit = time.Now().Add(timeout)
		time.AfterFunc(timeout+lastWords, part)
		begin()
	}
	context.AfterFunc(abort, func() { time.AfterFunc(lastWords, part) })
	x.breaker = breaker{log: cfg.Logger, probe: cfg.Probe, life: draining}
	return x
}

// newLife returns the life of a granted run.
func (x *executor) newLife(run *Run) *life { return &life{log: x.runLogger(run), refused: &x.refused} }

// runLogger returns a logger with the keys of one run.
func (x *executor) runLogger(run *Run) hclog.Logger {
	about := []any{"job", run.Job, "run_id", run.ID, "token", run.Token}
	if !run.Tick.IsZero() {
		about = append(about, "tick", run.Tick.UTC().Format(time.RFC3339))
	}
	return x.log.With(about...)
}

// The life of a run, from the grant of its tick to the release of its lease:
//
//	granted -> awaiting its pool -> running -> stopping -> dead -> recorded -> released
//
// After a dead try, another try may follow. A run whose work never begins is released without a record, and its grant is given back. phase.go has all
// transitions. They guarantee that no lease is released while a process of the run may still be alive.

// executeRun executes a granted run. If the job has a pool, it first waits for a slot of the pool; during this wait the run keeps its slot of the job
// and its place on this replica. If the tick was given back, the record of the ending is empty.
func (x *executor) executeRun(ctx context.Context, job *Job, run *Run, term *election.Term) ending {
	failpoint("granted", run)
	run.life = x.newLife(run)
	if job.Pool.Name == "" || term == nil {
		return x.carryOut(ctx, job, run, term)
	}
	run.life.moveTo(phase{name: phaseAwaitingPool})
	slot, why := x.enterPool(ctx, job, run, term)
	if why != nil {
		return ending{record: x.withholdRun(job, run, term, why)}
	}
	return x.carryOut(ctx, job, run, term.With(slot))
}

// An ending is the result of a run.
type ending struct {
	record    Record
	unstarted error // the reason if the work never began: the grant was given back, and there is no record
	// unreturned is closed when the Runner of the last try has returned. After a try that was called off, the Runner may still be running.
	unreturned <-chan struct{}
}

// carryOut runs the job with all its tries, records the end, and ends the term. When ctx ends, the run is stopped.
func (x *executor) carryOut(ctx context.Context, job *Job, run *Run, term *election.Term) ending {
	log := x.runLogger(run)
	run.Replica, run.Logger = x.replica, log
	record := Record{RunID: run.ID, Job: run.Job, Tick: run.Tick, Local: run.Local, Trigger: run.Trigger, Slot: run.Slot, Attempt: run.Attempt,
		Token: run.Token, Replica: x.replica, Outcome: Running, Started: x.now()}
	watched := logLostLease(job, run, term)
	end := x.runTries(ctx, job, run, term, &record)
	watched()
	if end.state == notStarted {
		return x.undoGrant(job, run, term, &record, end)
	}
	failpoint("ended", run)
	x.markSucceeded(job, run, term, &record)
	failpoint("told", run)
	x.recordEnd(record, job.Lease/4) // before the release: if this replica died in between, the run would stay "running" in the history for ever
	run.life.moveTo(phase{name: phaseRecorded})
	failpoint("recorded", run)
	if term != nil {
		if err := x.endTerm(job, run, term, &record, end.state == interrupted); err != nil {
			log.Warn("the lease could not be released; it ends by itself", "error", err)
		}
	}
	run.life.moveTo(phase{name: phaseReleased})
	failpoint("released", run)
	record.logEnd(run, "finished", term != nil && x.leavesToRecovery(job, run, &record, end.state == interrupted), x.earlierFailures(&record)...)
	return ending{record: record, unreturned: end.unreturned}
}

// recordEnd records the end of a run. Unless writes to the journal are failing, it waits for the write, at most for the time most.
func (x *executor) recordEnd(record Record, most time.Duration) {
	if x.recorder.journal == nil {
		return
	}
	written := x.recorder.add(record)
	if x.recorder.failing.Load() {
		return
	}
	limit, cancel := context.WithTimeout(x.parting, min(most, recordTimeout))
	defer cancel()
	defer context.AfterFunc(x.abort, cancel)()
	_ = written.wait(limit) // the recorder logs lost records
}

// markSucceeded tells Redis before the release that a run has succeeded, if children or recoveries depend on the success. Without it, the run would
// count as interrupted if this replica were killed before the release.
func (x *executor) markSucceeded(job *Job, run *Run, term *election.Term, record *Record) {
	if term == nil || record.Outcome != OK || !run.followed && (job.Recover.Max == 0 || run.Trigger == manual) {
		return
	}
	err := term.MarkSucceeded(x.parting, run.followed)
	if errors.Is(err, election.ErrUnknown) { // try once more: if this replica died after the run was recorded as ok, no child would run
		err = term.MarkSucceeded(x.parting, run.followed)
	}
	if err != nil {
		run.Logger.Debug("Redis has not acknowledged yet that the run has ended", "error", err)
	}
}

// endTerm ends the term of a recorded run. It hands over an interrupted run that may be recovered. If the job has children, Redis keeps the outcome
// for them.
func (x *executor) endTerm(job *Job, run *Run, term *election.Term, record *Record, interrupted bool) error {
	switch {
	case x.leavesToRecovery(job, run, record, interrupted):
		return term.HandOver(context.Background(), record.Attempt)
	case run.followed:
		return term.ReleaseWith(context.Background(), record.Outcome == OK)
	}
	return term.End(context.Background())
}

// leavesToRecovery reports whether a run that has ended is to be recovered: it was interrupted, and its job allows another attempt.
func (x *executor) leavesToRecovery(job *Job, run *Run, record *Record, interrupted bool) bool {
	interrupted = interrupted || record.Outcome == Lost || record.Outcome == Canceled && record.Reason == reasonDrain
	return interrupted && run.Trigger != manual && job.Recover.allowsAttempt(record.Tick, record.Attempt)
}

// streakTimeout bounds the wait for Config.Streak before a failed run is logged. The run keeps its place on this replica during the wait.
const streakTimeout = recordTimeout / 4

// earlierFailures returns keys and values about earlier failures of the job, for the log line of a failed run. It returns nil for a run that did not
// fail, or if the history does not answer.
func (x *executor) earlierFailures(r *Record) []any {
	if x.streak == nil || x.recorder.failing.Load() || r.Outcome != Failed && r.Outcome != TimedOut && r.Outcome != Lost {
		return nil
	}
	ctx, cancel := context.WithTimeout(x.parting, streakTimeout)
	defer cancel()
	defer context.AfterFunc(x.abort, cancel)()
	return x.streak(ctx, r.Job)
}

// logLostLease logs the loss of the lease of a run with OutlivesLease, until stop is called. For other runs, the loss is logged with the end of the
// run.
func logLostLease(job *Job, run *Run, term *election.Term) (stop func() bool) {
	if term == nil || !job.OutlivesLease {
		return func() bool { return true }
	}
	return context.AfterFunc(term.Context(), func() {
		run.Logger.Warn("lease lost; the run goes on", "error", context.Cause(term.Context()))
	})
}

const (
	shortestPause = 50 * time.Millisecond
	longestPause  = 2 * time.Second
)

// newBackoff returns the backoff between two attempts of the same request.
func newBackoff() *backoff.Backoff { return backoff.New(shortestPause, longestPause) }
