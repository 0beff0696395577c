package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/process"
	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/internal/units"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

// Output receives the output of a run. Only one goroutine may use it.
type Output interface {
	Line(stream string, line []byte)
	// End is called once, after the last line. It reports output that was dropped.
	End()
}

// OpenOutput returns the receiver for the output of a new run.
type OpenOutput func(job *config.Job, run *scheduler.Run) Output

type commandRunner struct {
	host      *process.Host
	job       *config.Job
	namespace string
	withheld  map[string]bool // variables that the job does not inherit from the replica
	keepTrace bool            // the job continues the trace in the environment of this process
	trust     safefile.Trust  // the permitted owners of the job's files
	open      OpenOutput
}

// Run runs the command, and returns when all its processes are dead.
func (r *commandRunner) Run(ctx context.Context, current *scheduler.Run) scheduler.Result {
	env, err := process.Environment(ctx, r.environmentOf(current))
	if err != nil {
		return unpreparedResult("prepare the environment", err)
	}
	output := r.open(r.job, current)
	defer output.End()
	exit := r.host.Run(ctx, current.Kill, process.Spec{
		Name: current.ID, Job: current.Job, Argv: r.job.Command, Dir: r.job.Dir, Env: env, User: r.job.User, Group: r.job.Group, NoNewPrivs: r.job.KeepsPrivileges(),
		Umask: r.job.Umask, Nice: r.job.Nice, Limits: process.Limits(r.job.Limits), Lease: current.Lease, KillGrace: r.job.KillGrace, Keep: r.job.Output.Keep,
		Line: output.Line, Begin: current.Begin, Started: current.Began,
	})
	return r.resultOf(exit)
}

// unpreparedResult returns the result of a run that was not begun because of an error. If this replica lacks a resource, the grant is given back.
func unpreparedResult(what string, err error) scheduler.Result {
	err = fmt.Errorf("%s: %w", what, err)
	if proc.IsExhausted(err) || errors.Is(err, safefile.ErrUnanswered) {
		err = fmt.Errorf("%w: %w", run.ErrNotStarted, err)
	}
	return scheduler.Result{Err: err}
}

// notStarted wraps an error of package process, so that it matches run.ErrNotStarted. The text stays the same.
type notStarted struct{ error }

// Is reports whether target is run.ErrNotStarted.
func (notStarted) Is(target error) bool { return target == run.ErrNotStarted }

// Unwrap returns the error of package process.
func (n notStarted) Unwrap() error { return n.error }

const (
	// mostStart is the time within which a run must start its program, unless its lease is shorter. leastStart is the minimum of that time, because the
	// replacement of a hanging warden takes that long.
	mostStart, leastStart = 10 * time.Second, 5 * time.Second
)

// startTimeout returns the time within which a run must start its program. Otherwise, its grant is undone.
func startTimeout(lease time.Duration) time.Duration { return max(min(lease, mostStart), leastStart) }

func (r *commandRunner) resultOf(exit process.Exit) scheduler.Result {
	result := scheduler.Result{Signal: exit.Signal, Output: exit.Tail, OutputCut: exit.Cut, LeftBehind: leftBehind(exit.Left)}
	switch {
	case exit.Err != nil:
		result.Err = exit.Err
		if code := exit.Status(); code == 126 || code == 127 {
			result.ExitCode = &code
		}
	case exit.Signal != "":
		result.Err = fmt.Errorf("ended by %s", exit.Signal)
	default:
		result.ExitCode = &exit.Code
		if !slices.Contains(r.job.OKExitCodes, exit.Code) {
			result.Err = fmt.Errorf("exit code %d", exit.Code)
		}
	}
	if errors.Is(exit.Err, process.ErrNotStarted) {
		result.Err = notStarted{exit.Err}
	}
	switch {
	case result.Err == nil:
	case exit.OutOfMemory:
		result.Err = r.outOfMemory(result.Err)
	case exit.OOMKills > 0:
		result.Err = fmt.Errorf("%w; meanwhile the kernel killed processes of the replica's cgroup because memory ran out (oom_kill rose by %d)", result.Err, exit.OOMKills)
	}
	if exit.Late { // the warden ended the run because of its lease, so the exit code says nothing about the command
		result.Err = run.ErrLost
	}
	if !exit.Killed.IsZero() {
		result.EndedAgo = time.Since(exit.Killed)
	}
	return result
}

func leftBehind(programs []string) string {
	if len(programs) == 0 {
		return ""
	}
	return fmt.Sprintf("processes left behind, and stopped: %d (%s)", len(programs), process.ListPrograms(programs))
}

// outOfMemory returns the error of a run that ran out of memory. It names the limit if the job has one.
func (r *commandRunner) outOfMemory(err error) error {
	if most := r.job.Limits.Memory; most > 0 {
		return fmt.Errorf("out of memory (limits.memory is %s): %w", units.FormatSize(most), err)
	}
	return fmt.Errorf("out of memory: %w", err)
}

func (r *commandRunner) environmentOf(run *scheduler.Run) process.EnvSpec {
	extra := map[string]string{}
	for _, v := range Variables() {
		if value, set := v.value(r, run); set {
			extra[v.Name] = value
		}
	}
	return process.EnvSpec{
		Base: os.Environ(), InheritEnv: r.job.InheritEnv, KeepTrace: r.keepTrace, EnvTaken: r.withheld, User: r.job.User, Group: r.job.Group, EnvFile: r.job.EnvFile,
		Env: r.job.Env, EnvFromFile: r.job.EnvFromFile, Trust: r.trust, Extra: extra,
	}
}

// A Variable is an environment variable that cronclave sets for a job's command.
type Variable struct {
	Name, Doc string
	value     func(*commandRunner, *scheduler.Run) (value string, set bool)
}

// Variables returns all variables that cronclave sets for a job's command. Package config refuses jobs that set them.
func Variables() []Variable {
	always := func(name, doc string, of func(*commandRunner, *scheduler.Run) string) Variable {
		return Variable{name, doc, func(r *commandRunner, run *scheduler.Run) (string, bool) { return of(r, run), true }}
	}
	ofTick := func(name, doc string, of func(time.Time) string) Variable {
		return Variable{name, doc, func(_ *commandRunner, run *scheduler.Run) (string, bool) { return of(run.Tick), !run.Tick.IsZero() }}
	}
	return []Variable{
		always("CRONCLAVE_JOB", "The job's name; with `per_tick = \"all\"`, `JOB@REPLICA`.", func(_ *commandRunner, run *scheduler.Run) string { return run.Job }),
		always("CRONCLAVE_NAMESPACE", "The cluster's namespace.", func(r *commandRunner, _ *scheduler.Run) string { return r.namespace }),
		always("CRONCLAVE_REPLICA", "The name of the replica.", func(_ *commandRunner, run *scheduler.Run) string { return run.Replica }),
		always("CRONCLAVE_RUN_ID", "The run's id in the history. Tries of `retry` share it.", func(_ *commandRunner, run *scheduler.Run) string { return run.ID }),
		ofTick("CRONCLAVE_TICK", "The tick in RFC 3339, UTC. Not set outside the schedule.", func(tick time.Time) string { return tick.UTC().Format(time.RFC3339) }),
		ofTick("CRONCLAVE_TICK_UNIX", "The tick in seconds since 1970. Not set outside the schedule.", func(tick time.Time) string { return strconv.FormatInt(tick.Unix(), 10) }),
		always("CRONCLAVE_ATTEMPT", "Number of the try of the tick, from 1. Numbers can have gaps.",
			func(_ *commandRunner, run *scheduler.Run) string { return strconv.Itoa(run.Attempt) }),
		{"CRONCLAVE_FENCING_TOKEN", "The fencing token: a decimal number below 2^53. Not set without a lock.", func(_ *commandRunner, run *scheduler.Run) (string, bool) {
			return strconv.FormatInt(run.Token, 10), run.Token != 0
		}},
		always("CRONCLAVE_SLOT", "The slot of the run, from 0.", func(_ *commandRunner, run *scheduler.Run) string { return strconv.Itoa(run.Slot) }),
		always("CRONCLAVE_SLOTS", "Slots of the job (`parallel`).", func(_ *commandRunner, run *scheduler.Run) string { return strconv.Itoa(run.Slots) }),
		always("CRONCLAVE_TRIGGER", "Cause of the run: `schedule`, `manual`, `catch_up` or `recovery`.", func(_ *commandRunner, run *scheduler.Run) string { return run.Trigger }),
		{"TRACEPARENT", "W3C context of the try, with [traces](metrics.md#traces). Without them, `exec` passes on its own.", func(_ *commandRunner, run *scheduler.Run) (string, bool) {
			return run.Traceparent, run.Traceparent != ""
		}},
	}
}

// runners makes the runners of jobs.
type runners struct {
	cfg       *config.Config // with all jobs, also if only one of them runs
	host      *process.Host
	open      OpenOutput
	traces    *tracer
	keepTrace bool
}

func jobsOf(cfg *config.Config, by runners) []scheduler.Job {
	var jobs []scheduler.Job
	for i := range cfg.Jobs {
		j := &cfg.Jobs[i]
		if !j.Enabled {
			continue
		}
		zone := j.Location
		if len(j.After) > 0 { // the parents of a chained job determine its ticks
			zone = nil
		}
		jobs = append(jobs, scheduler.Job{
			Name: j.Name, Schedule: j.Schedule, After: j.After, Location: zone, Jitter: j.Jitter,
			Except: j.Except, ExceptDates: j.ExceptDates, StartsAt: j.StartsAt, ExpiresAt: j.ExpiresAt,
			Parallel: j.Parallel, PerTick: j.PerTick, PerReplica: j.PerReplica, StartDeadline: j.StartDeadline,
			Timeout: noneIfZero(j.Timeout), KillGrace: noneIfZero(j.KillGrace), Lease: j.Lease, StartTimeout: startTimeout(j.Lease), OutlivesLease: j.OutlivesLease, Where: labelsOf(j),
			Overlap: scheduler.Overlap(j.Overlap), CatchUp: scheduler.CatchUp{Policy: scheduler.CatchUpPolicy(j.CatchUp), Window: j.CatchUpWindow},
			Retry: scheduler.Retry(j.Retry), Recover: scheduler.Recover{Max: j.Recover}, Pool: scheduler.Pool{Name: j.Pool, Slots: j.PoolSlots},
			Runner: by.newRunner(j),
		})
	}
	return jobs
}

// labelsOf returns the labels that a replica needs to run a job. The instance of a job with per_tick = "all" is for one replica.
func labelsOf(j *config.Job) scheduler.Labels {
	if j.On == "" {
		return j.Where
	}
	labels := scheduler.Labels{scheduler.ReplicaLabel: j.On}
	maps.Copy(labels, j.Where)
	return labels
}

func (r runners) newRunner(j *config.Job) scheduler.Runner {
	if j.HTTP != nil {
		return tracedRunner{&httpRunner{job: j, trust: r.cfg.Trust, open: r.open}, r.traces, j}
	}
	return tracedRunner{&commandRunner{host: r.host, job: j, namespace: r.cfg.Namespace, withheld: r.cfg.Withheld(j), keepTrace: r.keepTrace, trust: r.cfg.Trust, open: r.open}, r.traces, j}
}

// hashZones returns hashes of the time zones in which the jobs of a configuration have ticks.
func hashZones(cfg *config.Config, now time.Time) map[string]string {
	var zones []*time.Location
	for _, j := range cfg.EnabledJobs() {
		if len(j.After) == 0 {
			zones = append(zones, j.Location)
		}
	}
	return cluster.HashZones(zones, now)
}

// noneIfZero converts a duration of the configuration, in which 0 means none, to a duration of the scheduler. There -1 means none, and 0 means the default.
func noneIfZero(d time.Duration) time.Duration { return cmp.Or(d, -1) }
