package replica

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/process"
	"github.com/cronclave/cronclave/internal/trace"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

// OnceConfig configures a [Once].
type OnceConfig struct {
	// Jobs is the configuration. Job is the job to run, one of Jobs.
	Jobs *config.Config
	Job  *config.Job
	// Name is this replica's name. Version is the version of the program.
	Name, Version string
	// Traceparent is the trace context that the run continues, or "".
	Traceparent string
	// Locks and Journal coordinate the run with the cluster; nil for a run outside the cluster.
	Locks   *locking.Client
	Journal *journal.Journal
	Log     hclog.Logger
	// Output receives the job's output.
	Output Output
}

// A Once runs one job in the foreground, even if the job is not enabled. [Once.Close] releases its resources.
type Once struct {
	scheduler *scheduler.Scheduler
	processes *Processes
	job       string
	locked    bool
	traces    *tracer
	endTraces func() // sends the spans that wait
}

// NewOnce returns a Once. It starts a warden, and sends nothing to Redis.
func NewOnce(cfg OnceConfig) (*Once, error) {
	sc := scheduler.Config{Replica: cfg.Name, Labels: cfg.Jobs.Replica.Labels, Logger: cfg.Log}
	if cfg.Locks != nil {
		elector, err := election.New(election.Config{Locks: cfg.Locks})
		if err != nil {
			return nil, err
		}
		sc.Claimer, sc.Pools, sc.Journal, sc.GrantEvents = elector, elector, recorder{journal: cfg.Journal}, elector
	}
	process.KeepInherited()
	processes, err := StartProcesses(cfg.Log, WardenLog{})
	if err != nil {
		return nil, err
	}
	o := &Once{processes: processes, job: cfg.Job.Name, locked: cfg.Locks != nil}
	if err := fitJob(cfg.Job, processes.Host.Check); err != nil {
		o.Close()
		return nil, UsageError{err}
	}
	sc.Jobs = foregroundJobs(cfg, processes.Host, o.startTraces(cfg))
	if o.scheduler, err = scheduler.New(sc); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// Run runs the job, under its lock if there is one. Its errors are the errors of [scheduler.Scheduler.RunNow].
func (o *Once) Run(ctx context.Context) (run.Record, error) {
	record, err := o.scheduler.RunNow(ctx, o.job, o.locked)
	if err == nil {
		o.traces.addRun(record)
	}
	return record, err //nolint:wrapcheck // the caller distinguishes the errors
}

// startTraces starts to send traces. They continue the trace of the caller.
func (o *Once) startTraces(cfg OnceConfig) *tracer {
	now := time.Now
	if cfg.Locks != nil {
		now = func() time.Time {
			if at, known := cfg.Locks.Engine().EstimatedTime(); known {
				return at
			}
			return time.Now()
		}
	}
	o.traces = newTracer(func() *config.Config { return cfg.Jobs }, cfg.Name, cfg.Version, cfg.Log, now)
	o.traces.parent, _ = trace.ParseContext(cfg.Traceparent)
	ctx, cancel := context.WithCancel(context.Background())
	var sending sync.WaitGroup
	sending.Go(func() { o.traces.Exporter.Run(ctx) })
	o.endTraces = func() { cancel(); sending.Wait() }
	return o.traces
}

// Abort kills the job. It does not wait.
func (o *Once) Abort() { o.scheduler.Abort() }

// Close ends the warden, and sends the rest of the traces.
func (o *Once) Close() {
	o.processes.Close()
	if o.endTraces != nil {
		o.endTraces()
	}
}

// anySchedule is a placeholder for the schedule of a job that runs outside its schedule.
var anySchedule = []string{"@yearly"}

// foregroundJobs returns the job to run: enabled, and without parents and retries.
func foregroundJobs(cfg OnceConfig, host *process.Host, traces *tracer) []scheduler.Job {
	only := *cfg.Jobs
	only.Jobs = []config.Job{*cfg.Job}
	only.Jobs[0].Enabled, only.Jobs[0].Retry = true, config.Retry{} // a run in the foreground is not repeated
	if len(cfg.Job.After) > 0 {
		only.Jobs[0].After, only.Jobs[0].Schedule = nil, anySchedule
	}
	return jobsOf(&only, runners{cfg: cfg.Jobs, host: host, open: func(*config.Job, *scheduler.Run) Output { return cfg.Output }, traces: traces, keepTrace: true})
}

// Environment returns the description of a run's environment. The files that the description names are not read yet.
func Environment(cfg *config.Config, job *config.Job, run *scheduler.Run) process.EnvSpec {
	r := &commandRunner{job: job, namespace: cfg.Namespace, withheld: cfg.Withheld(job), trust: cfg.Trust}
	return r.environmentOf(run)
}
