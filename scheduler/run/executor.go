package run

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/scheduler/internal/failpoint"
)

// Config has the services that an [Executor] uses.
type Config struct {
	Replica string // names this replica in records
	Logger  hclog.Logger
	Now     func() time.Time
	Abort   context.Context // ends when runs must be killed at once
	Journal Journal         // may be nil
	// Streak returns keys and values about the earlier failures of a job, for the log line of a failed run. May be nil.
	Streak func(ctx context.Context, job string) []any
	Pools  Pools
	// Publish publishes events, like [election.Elector.Publish]. The executor passes terms that were given back as begun. May be nil.
	Publish func(ctx context.Context, begun, ended []*election.Term) error
	// Probe returns an error if this machine cannot start programs. May be nil.
	Probe func() error
}

// An Executor executes granted runs. It starts a run, records the start, stops the run in time if necessary, waits until nothing of the run is left,
// records the end, and releases the lease, always in this order. So no lease is released while a process of the run may still be alive. It is safe
// for concurrent use.
type Executor struct {
	Config
	recorder *Recorder
	breaker  breaker
	backoffs startBackoffs

	draining context.Context // ends when the drain begins
	drain    context.CancelFunc
	limit    time.Time       // the end of the drain; read after draining has ended
	parting  context.Context // ends lastWords after the drain or the abort; from then on nothing waits for records
	part     context.CancelFunc
}

// NewExecutor returns an executor.
func NewExecutor(cfg Config) *Executor {
	x := &Executor{Config: cfg, recorder: newRecorder(cfg.Journal, cfg.Logger)}
	x.draining, x.drain = context.WithCancel(context.Background())
	x.parting, x.part = context.WithCancel(context.Background())
	context.AfterFunc(cfg.Abort, func() { time.AfterFunc(lastWords, x.part) })
	x.breaker = breaker{log: cfg.Logger, probe: cfg.Probe, life: x.draining}
	return x
}

// StartRecorder starts the recorder. end stops it, and waits until it has ended.
func (x *Executor) StartRecorder() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var recorder sync.WaitGroup
	x.recorder.openQueue()
	recorder.Go(func() { x.recorder.run(ctx, x.parting) })
	return func() {
		cancel()
		recorder.Wait()
	}
}

// Drain begins the drain: runs are stopped so that they have ended when timeout has passed.
func (x *Executor) Drain(timeout time.Duration) {
	x.limit = time.Now().Add(timeout)
	time.AfterFunc(timeout+lastWords, x.part)
	x.drain()
}

// Draining returns a context that ends when the drain begins.
func (x *Executor) Draining() context.Context { return x.draining }

// Parting returns a context that ends shortly after the drain's limit, or after Abort. From then on nothing waits for Redis.
func (x *Executor) Parting() context.Context { return x.parting }

// Recorder returns the recorder of the executor's runs.
func (x *Executor) Recorder() *Recorder { return x.recorder }

// Unable returns the reason why programs cannot be started on this machine, or "" if they can.
func (x *Executor) Unable() string { return x.breaker.openReason() }

// CheckStart returns an error if a probe shows that programs cannot be started. [Executor.Unable] then returns the reason.
func (x *Executor) CheckStart() error {
	err := x.breaker.probeStart()
	if err != nil {
		x.breaker.noteFailedStart(err)
	}
	return err
}

// StartFailure returns the reason why the last start of a job failed, or "" if it did not fail.
func (x *Executor) StartFailure(job string) string {
	x.backoffs.mu.Lock()
	defer x.backoffs.mu.Unlock()
	return x.backoffs.byJob[job].why
}

// StartFailures returns the jobs whose last start failed, with the reasons.
func (x *Executor) StartFailures() map[string]string {
	x.backoffs.mu.Lock()
	defer x.backoffs.mu.Unlock()
	jobs := map[string]string{}
	for job, f := range x.backoffs.byJob {
		jobs[job] = f.why
	}
	return jobs
}

// AfterUnstarted waits until the Runner of a run that could not start has returned, because the Runner may hang. If this replica can start other
// programs, AfterUnstarted first waits for a growing pause, during which other replicas claim the job. If it cannot, there is no pause, because the
// open breaker stops all claims. The drain ends both waits.
func (x *Executor) AfterUnstarted(job string, end Ending) {
	var pause time.Duration
	if !x.breaker.noteFailedStart(end.Unstarted) {
		pause = x.backoffs.nextPause(job, end.Unstarted)
		x.Logger.Warn("cannot start the job; it is left to the other replicas", "job", job, "error", end.Unstarted, "retry_in", pause.String())
	}
	backoff.Sleep(x.draining, pause)
	select {
	case <-end.unreturned:
	case <-x.draining.Done():
	}
}

// A Grant is a run that this replica was granted.
type Grant struct {
	Run  Run
	Job  *Job
	Term *election.Term // nil without a lock
	// StartBy is the latest end of the wait for a slot of the pool. If it is zero, Job.PoolWait bounds the wait.
	StartBy time.Time
	// Insist is the instant until which a failed start is repeated. It is set for a requested run, which no other replica can start. If it is zero,
	// the grant is given back after a failed start.
	Insist time.Time
	// Followed is true if another job runs after this job (`after`) and needs the outcome of this tick.
	Followed bool
	// Foreground is true if the caller has taken the slot of the pool, and reports the end of the run itself.
	Foreground bool
}

// An Ending is the result of a run.
type Ending struct {
	Record    Record // empty if the tick was given back
	Unstarted error  // the reason if the work never began: the grant was given back, and there is no record
	// unreturned is closed when the Runner of the last try has returned. The Runner of a try that was called off may still be running.
	unreturned <-chan struct{}
}

// An execution is a run under way. Only the goroutine of Execute calls its methods, except recordBegun, which the goroutine of the Runner may call.
type execution struct {
	*Grant
	x      *Executor
	stop   context.Context // ends when the caller stops the run
	log    hclog.Logger
	record Record
}

// Execute executes a granted run. If the job has a pool, Execute first waits for a slot of the pool; during this wait the run keeps its slot of the
// job. When stop ends, the run is stopped.
func (x *Executor) Execute(stop context.Context, g *Grant) Ending {
	g.Run.Granted = x.Now()
	e := &execution{Grant: g, x: x, stop: stop, log: x.runLogger(&g.Run)}
	e.reach("granted")
	if g.Job.Pool != "" && g.Term != nil && !g.Foreground {
		slot, why := e.enterPool()
		if why != nil {
			return Ending{Record: e.withholdRun(why)}
		}
		g.Term = g.Term.With(slot)
	}
	return e.carryOut()
}

// reach marks a point at which a test may kill this replica.
func (e *execution) reach(point string) { failpoint.Reach(point, e.Run.Job, e.Run.Tick) }

func (x *Executor) runLogger(run *Run) hclog.Logger {
	about := []any{"job", run.Job, "run_id", run.ID, "token", run.Token}
	if !run.Tick.IsZero() {
		about = append(about, "tick", run.Tick.UTC().Format(time.RFC3339))
	}
	return x.Logger.With(about...)
}

func (e *execution) carryOut() Ending {
	run := &e.Run
	run.Replica, run.Logger = e.x.Replica, e.log
	e.record = Record{RunID: run.ID, Job: run.Job, Tick: run.Tick, TickLocal: LocalText(run.Local), Trigger: run.Trigger, Slot: new(run.Slot), Attempt: run.Attempt,
		Token: run.Token, Replica: run.Replica, Outcome: Running, Started: e.x.Now()}
	watched := e.logLostLease()
	end := e.runTries()
	watched()
	if end.state == notStarted {
		return e.undoGrant(end)
	}
	e.reach("ended")
	e.explainLoss()
	e.markSucceeded()
	e.reach("told")
	e.recordEnd() // before the release: if this replica died in between, the run would stay "running" in the history for ever
	e.reach("recorded")
	if e.Term != nil {
		e.logUnreleased(e.endTerm(end.state == interrupted))
	}
	e.reach("released")
	e.logEnd(e.Term != nil && e.leavesToRecovery(end.state == interrupted))
	return Ending{Record: e.record, unreturned: end.unreturned}
}

// explainLoss adds to the record of a lost run why its lease ended, or would have ended.
func (e *execution) explainLoss() {
	r := &e.record
	if r.Outcome != Lost || e.Term == nil {
		return
	}
	why := "not renewed in time"
	if cause := context.Cause(e.Term.Context()); cause != nil {
		why = election.Plain(cause).Error()
	} else if e.Term.Remaining() > 0 {
		why = "stopped before the lease ended, because it was not renewed"
	}
	if r.Detail != "" {
		why += "; " + r.Detail
	}
	r.Detail = why
}

// recordEnd records the end of a run. It waits for the write, at most for a quarter of the lease. If writes to the journal are failing, it does not
// wait.
func (e *execution) recordEnd() {
	recorder := e.x.recorder
	if !recorder.HasJournal() {
		return
	}
	written := recorder.Add(e.record)
	if recorder.failing.Load() {
		return
	}
	limit, cancel := context.WithTimeout(e.x.parting, min(e.Job.Lease/4, RecordTimeout))
	defer cancel()
	defer context.AfterFunc(e.x.Abort, cancel)()
	_ = written.Wait(limit) // the recorder logs lost records
}

// markSucceeded records in Redis, before the release, that a run has succeeded, if children or recoveries depend on the success. Otherwise, the run
// would count as interrupted if this replica were killed before the release.
func (e *execution) markSucceeded() {
	if e.Term == nil || e.record.Outcome != OK || !e.Followed && (e.Job.Recovers == nil || e.Run.Trigger == Manual) {
		return
	}
	err := e.Term.MarkSucceeded(e.x.parting, e.Followed)
	if errors.Is(err, election.ErrUnknown) { // try once more: if this replica died while the journal has the outcome ok but Redis does not, no child would run
		err = e.Term.MarkSucceeded(e.x.parting, e.Followed)
	}
	if err != nil {
		e.log.Debug("Redis has not acknowledged yet that the run has ended", "error", err)
	}
}

// endTerm ends the term of a recorded run. It hands over an interrupted run that may be recovered. If Followed is set, it also stores the outcome in
// Redis.
func (e *execution) endTerm(interrupted bool) error {
	switch {
	case e.leavesToRecovery(interrupted):
		return e.Term.HandOver(context.Background(), e.record.Attempt)
	case e.Followed:
		return e.Term.ReleaseWith(context.Background(), e.record.Outcome == OK)
	}
	return e.Term.End(context.Background())
}

func (e *execution) logUnreleased(err error) {
	if err != nil {
		e.log.Warn("the lease could not be released; it ends by itself", "error", err)
	}
}

// leavesToRecovery reports whether another replica may recover a run that has ended: the run was interrupted, and its job allows another attempt.
func (e *execution) leavesToRecovery(interrupted bool) bool {
	interrupted = interrupted || e.record.Outcome == Lost || e.record.Outcome == Canceled && e.record.Reason == ReasonDrain
	return interrupted && e.Run.Trigger != Manual && e.Job.Recovers != nil && e.Job.Recovers(e.record.Tick, e.record.Attempt)
}

// logEnd logs the end of a run. For a run in the foreground it uses DEBUG, because the caller reports the end.
func (e *execution) logEnd(recovered bool) {
	r := &e.record
	level := r.Verdict().LogLevel(recovered)
	if e.Foreground {
		level = hclog.Debug
	}
	args := append(e.earlierFailures(), r.logFields()...)
	if r.FailedTries > 0 {
		args = append(args, "failed_tries", r.FailedTries)
	}
	e.log.Log(level, "finished", args...)
}

// streakTimeout bounds the wait for Config.Streak before a failed run is logged. The run keeps its place on this replica during the wait.
const streakTimeout = RecordTimeout / 4

// earlierFailures returns keys and values about earlier failures of the job, for the log line of a failed run. It returns nil for a run that did not
// fail, or if the history does not answer.
func (e *execution) earlierFailures() []any {
	x, outcome := e.x, e.record.Outcome
	if x.Streak == nil || x.recorder.failing.Load() || outcome != Failed && outcome != TimedOut && outcome != Lost {
		return nil
	}
	ctx, cancel := context.WithTimeout(x.parting, streakTimeout)
	defer cancel()
	defer context.AfterFunc(x.Abort, cancel)()
	return x.Streak(ctx, e.Run.Job)
}

// logLostLease logs the loss of the lease of a run with OutlivesLease, until stop is called. For other runs, the line about the end shows the loss.
func (e *execution) logLostLease() (stop func() bool) {
	if e.Term == nil || !e.Job.OutlivesLease {
		return func() bool { return true }
	}
	ctx := e.Term.Context()
	return context.AfterFunc(ctx, func() { e.log.Warn("lease lost; the run goes on", "error", context.Cause(ctx)) })
}

// undoGrant ends the term of a run that never began. It gives the grant back, so that another replica can run the tick. If Insist is set, no other
// replica can start the run, and undoGrant records an outcome of the run instead.
func (e *execution) undoGrant(end tryEnd) Ending {
	switch {
	case e.Term == nil:
	case e.Insist.IsZero():
		e.giveBack(end.why.Error())
	default:
		return Ending{Record: e.abandonRequest(), unreturned: end.unreturned}
	}
	return Ending{Unstarted: end.why, unreturned: end.unreturned}
}

// abandonRequest records the outcome of a requested run that never began, because the request expired or the run was stopped.
func (e *execution) abandonRequest() Record {
	e.record.Started, e.record.Finished = time.Time{}, e.x.Now()
	switch why := whyStopped(e.Term); {
	case why != nil:
		e.record.setOutcome(nil, why, false)
	case e.Term.Context().Err() != nil:
		e.record.setOutcome(nil, ErrLost, false)
	case e.x.draining.Err() != nil, e.x.Abort.Err() != nil:
		e.record.setOutcome(nil, ErrDrain, false)
	default:
		e.record.Outcome, e.record.Reason = Missed, ReasonCapacity
	}
	e.explainLoss()
	e.recordEnd()
	e.logUnreleased(e.Term.End(context.Background()))
	e.logNotStarted()
	return e.record
}

// giveBack gives back the grant of a tick, and publishes an event. Replicas that closed the tick when it was granted then open it again.
func (e *execution) giveBack(reason string) {
	if err := e.Term.Undo(context.Background()); err != nil {
		e.log.Warn("a tick that was not started could not be given back", "reason", reason, "error", err)
		return
	}
	e.log.Info("not started, and given back", "reason", reason)
	if e.x.Publish == nil {
		return
	}
	if err := e.x.Publish(context.Background(), []*election.Term{e.Term}, nil); err != nil {
		e.log.Debug("returned tick not published; other replicas notice it when the lease would have ended", "error", err)
	}
}
