package scheduler

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
)

// executor leads a run through its life: recorded, started, stopped in time, dead, recorded again, released. In
// that order, whatever happens.
type executor struct {
	replica  string
	now      func() time.Time
	log      hclog.Logger
	recorder *recorder
	pools    Pools
	notices  Notices
	breaker  breaker
	pauses   startPauses

	draining context.Context     // ends when the drain begins
	drain    func(time.Duration) // begins it
	limit    time.Time           // when the drain is over; read after draining has ended
	abort    context.Context     // ends when runs must be killed at once
	parting  context.Context     // ends lastWords after the drain's limit, or after the abort: no record is waited for any more
}

func newExecutor(cfg Config, now func() time.Time, abort context.Context) *executor {
	x := &executor{replica: cfg.Replica, now: now, log: cfg.Logger, abort: abort,
		recorder: newRecorder(cfg.Journal, cfg.Logger), pools: cfg.Pools, notices: cfg.Notices}
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

// killMargin is how long before the lease's end its run is killed: a twentieth, so that dying has time.
func killMargin(lease time.Duration) time.Duration { return max(lease/20, 50*time.Millisecond) }

// stopLead is how long before the lease's end a run is told to stop when renewals have failed.
func stopLead(job *Job) time.Duration { return min(job.KillGrace, job.Lease/3) + killMargin(job.Lease) }

// led is how a run has gone.
type led struct {
	record     Record
	unstarted  error           // why nothing of it has ever begun: its grant was given back, and there is no record
	unreturned <-chan struct{} // closed when the Runner of its last try has returned, which may be later than the end of the run if that was withdrawn
}

// lead runs the job and returns its final record, which is queued for the journal. When ctx ends the run is stopped.
func (x *executor) lead(ctx context.Context, job *Job, run *Run, term *election.Term) led {
	log := x.logger(run)
	run.Replica, run.Logger = x.replica, log
	record := Record{RunID: run.ID, Job: run.Job, Tick: run.Tick, Trigger: run.Trigger, Slot: run.Slot, Attempt: run.Attempt,
		Token: run.Token, Replica: x.replica, Outcome: Running, Started: x.now()}
	watched := tellLostLease(job, run, term)
	end := x.tries(ctx, job, run, term, &record)
	watched()
	if end.state == notStarted {
		return x.undo(job, run, term, &record, end)
	}
	failpoint("ended", run)
	x.tellEnd(job, run, term, &record)
	failpoint("told", run)
	x.announce(record, job.Lease/4) // before the release: else a replica that dies in between leaves a run that seems to go on for ever
	failpoint("recorded", run)
	if term != nil {
		if err := x.part(job, run, term, &record, end.state == interrupted); err != nil {
			log.Warn("the lease could not be released; it ends by itself", "error", err)
		}
	}
	failpoint("released", run)
	record.tell(run, "finished", term != nil && x.recovers(job, run, &record, end.state == interrupted))
	return led{record: record, unreturned: end.unreturned}
}

// logger tells of one run.
func (x *executor) logger(run *Run) hclog.Logger {
	about := []any{"job", run.Job, "run_id", run.ID, "token", run.Token}
	if !run.Tick.IsZero() {
		about = append(about, "tick", run.Tick.UTC().Format(time.RFC3339))
	}
	return x.log.With(about...)
}

// conclude derives the outcome: of the stop if there was one, else of the result. What fails when the lease has lapsed may have failed
// of that before anybody here could see it: this process stood still, and the run was killed.
func (r *Record) conclude(result Result, cause error, lapsed bool) {
	r.ExitCode, r.Signal, r.Output = result.ExitCode, result.Signal, result.Output
	if cause == nil && result.Err != nil && (lapsed || errors.Is(result.Err, ErrLost)) {
		cause = ErrLost
	}
	switch {
	case errors.Is(cause, ErrTimeout):
		r.Outcome = TimedOut
	case errors.Is(cause, ErrDrain):
		r.Outcome, r.Reason = Canceled, reasonDrain
	case errors.Is(cause, ErrReplaced):
		r.Outcome, r.Reason = Canceled, "replaced"
	case errors.Is(cause, ErrLost):
		r.Outcome = Lost
	case errors.Is(cause, errStartTimeout): // though it has begun, in the last moment
		r.Outcome, r.Reason = Failed, cause.Error()
	case cause != nil:
		r.Outcome, r.Reason = Canceled, "user"
	case result.Err != nil:
		r.Outcome, r.Reason = Failed, result.Err.Error()
	default:
		r.Outcome = OK
	}
}

// announce records an end before the release, if the journal answers.
func (x *executor) announce(record Record, most time.Duration) {
	if x.recorder.journal == nil {
		return
	}
	written, _ := x.recorder.add(record)
	if x.recorder.failing.Load() {
		return
	}
	patience, cancel := context.WithTimeout(x.parting, min(most, recordTimeout))
	defer cancel()
	defer context.AfterFunc(x.abort, cancel)()
	_ = written.wait(patience) // the recorder tells what it could not write
}

// launch runs one try under its two contexts and returns why it was stopped, if it was. began is called, by the runner's goroutine, when the work has begun.
// The runner gets a copy of the run: one that was withdrawn may still use it when the next try is launched.
func (x *executor) launch(ctx context.Context, job *Job, of *Run, term *election.Term, began func(at time.Time)) (begin *start, result Result, cause error) {
	stop, stopNow := context.WithCancelCause(context.Background())
	kill, killNow := context.WithCancel(context.Background())
	defer killNow()
	defer stopNow(nil)
	begin = &start{began: began, now: x.now, over: make(chan struct{})}
	try := *of
	run := &try
	run.Kill, run.start = kill, begin
	x.awaitLease(ctx, term)
	if why := x.tooLate(term); why != nil {
		close(begin.over)
		return begin, Result{}, why
	}
	asked := term
	if job.OutlivesLease {
		term = nil
	}
	if term != nil {
		run.Lease = term
	}
	if job.StartTimeout == 0 {
		_ = begin.begin() // nothing else can have left that state yet
		begin.confirm()
	}
	returned := Result{Err: errNoReturn} // unless it does
	go func() {
		defer close(begin.over)
		returned = job.call(stop, run)
	}()
	g := guard{executor: x, job: job, term: term, cancel: ctx, asked: asked, start: begin, stop: stopNow, kill: killNow}
	cause = g.watch(begin.over)
	if begin.is(withdrawn) {
		return begin, Result{}, cause // whether or not the runner has returned
	}
	return begin, returned, cause
}

// awaitLease waits until a run has its whole lease: one whose grant was told late might be stopped before it has done anything.
func (x *executor) awaitLease(ctx context.Context, term *election.Term) {
	if term == nil {
		return
	}
	select {
	case <-term.Confirmed():
	case <-term.Context().Done():
	case <-stopping(term):
	case <-ctx.Done():
	case <-x.draining.Done():
	case <-x.abort.Done():
	}
}

// tooLate tells why a run must not be started any more: it took too long to get here.
func (x *executor) tooLate(term *election.Term) error {
	switch {
	case term != nil && term.Context().Err() != nil:
		return ErrLost
	case x.abort.Err() != nil, x.draining.Err() != nil && time.Now().After(x.limit):
		return ErrDrain
	}
	return whyStopped(term)
}

// errNoReturn is the result of a function that ended its goroutine.
var errNoReturn = errors.New("runtime.Goexit was called")

// call runs the runner; a panic is a failed run.
func (j *Job) call(stop context.Context, run *Run) (result Result) {
	defer func() {
		if p := recover(); p != nil {
			run.Logger.Error("the job panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			result = Result{Err: fmt.Errorf("panic: %v", p)}
		}
	}()
	return j.Runner.Run(stop, run)
}
