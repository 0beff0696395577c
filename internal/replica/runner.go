package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/exhaustion"
	"github.com/cronclave/cronclave/internal/process"
	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/internal/units"
	"github.com/cronclave/cronclave/scheduler"
)

// Output receives the output of a run. Only one goroutine may use it.
type Output interface {
	Line(stream string, line []byte)
	End()
}

// OpenOutput returns the receiver for the output of a new run.
type OpenOutput func(job *config.Job, run *scheduler.Run) Output

// A commandRunner runs a job's command as a tree of processes.
type commandRunner struct {
	host      *process.Host
	job       *config.Job
	namespace string
	withheld  map[string]bool // variables that the job does not inherit from the replica
	trust     safefile.Trust  // the permitted owners of the job's files
	open      OpenOutput
}

// Run runs the command, and returns when the whole tree is dead.
func (r *commandRunner) Run(ctx context.Context, run *scheduler.Run) scheduler.Result {
	env, err := process.Environment(ctx, r.environmentOf(run))
	if err != nil {
		err = fmt.Errorf("prepare the environment: %w", err)
		if exhaustion.Is(err) || errors.Is(err, safefile.ErrUnanswered) {
			err = fmt.Errorf("%w: %w", scheduler.ErrNotStarted, err)
		}
		return scheduler.Result{Err: err}
	}
	output := r.open(r.job, run)
	defer output.End()
	exit := r.host.Run(ctx, run.Kill, process.Spec{
		Name: run.ID, Job: run.Job, Argv: r.job.Command, Dir: r.job.Dir, Env: env, User: r.job.User, Group: r.job.Group, NoNewPrivs: r.job.KeepsPrivileges(),
		Umask: r.job.Umask, Nice: r.job.Nice, Limits: process.Limits(r.job.Limits), Lease: leaseOf(run), KillGrace: r.job.KillGrace, Keep: r.job.Output.Keep,
		Line: output.Line, Begin: run.Begin, Started: run.Began,
	})
	return r.resultOf(exit)
}

// notStarted wraps an error of package command, so that it matches scheduler.ErrNotStarted. The text stays the same.
type notStarted struct{ error }

// Is reports whether target is scheduler.ErrNotStarted.
func (notStarted) Is(target error) bool { return target == scheduler.ErrNotStarted }

// Unwrap returns the error of package command.
func (n notStarted) Unwrap() error { return n.error }

const (
	// mostStart is the time within which a run must start its program, unless its lease is shorter. leastStart is the minimum of that time, because the
	// replacement of a hanging warden takes that long.
	mostStart, leastStart = 10 * time.Second, 5 * time.Second
)

// startTimeout returns the time within which a run must start its program. Otherwise, its grant is undone.
func startTimeout(lease time.Duration) time.Duration { return max(min(lease, mostStart), leastStart) }

// leaseOf returns the lease of a run; nil if it has none.
func leaseOf(run *scheduler.Run) process.Lease {
	if run.Lease == nil {
		return nil
	}
	return run.Lease
}

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
	if exit.Late { // the lease was lost, regardless of the exit code
		result.Err = scheduler.ErrLost
	}
	if !exit.Killed.IsZero() {
		result.EndedAgo = time.Since(exit.Killed)
	}
	return result
}

// leftBehind describes the processes that a run left behind; "" if there are none.
func leftBehind(programs []string) string {
	if len(programs) == 0 {
		return ""
	}
	return fmt.Sprintf("processes left behind, and stopped: %d (%s)", len(programs), process.ListPrograms(programs))
}

// outOfMemory returns the error of a run without memory. It names the limit if the job has one.
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
		Base: os.Environ(), InheritEnv: r.job.InheritEnv, EnvTaken: r.withheld, User: r.job.User, Group: r.job.Group, EnvFile: r.job.EnvFile,
		Env: r.job.Env, EnvFromFile: r.job.EnvFromFile, Trust: r.trust, Extra: extra,
	}
}
