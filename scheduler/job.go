package scheduler

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
)

// A Job has a Runner, a schedule, and the policies for its runs.
type Job struct {
	// Name matches [A-Za-z0-9][A-Za-z0-9_-]{0,127}. It is the job's identity on all replicas.
	Name string
	// Schedule has one or more cron expressions: see package cronspec. Location is their time zone, and defaults to UTC. [cronspec.LoadLocation] returns
	// the same zone on every machine.
	Schedule []string
	Location *time.Location
	// Except has cron expressions, and ExceptDates has days in Location such as "2026-12-25". The instants of these expressions and days are not ticks.
	// Ticks begin at StartsAt and end before ExpiresAt; zero means no bound. A job without any tick is invalid, but a job that has expired is valid.
	Except, ExceptDates []string
	StartsAt, ExpiresAt time.Time
	// After, instead of a Schedule, has the names of other jobs, the parents. The job runs once for each tick that ended ok for all parents. This tick
	// is due when, for every parent, the tick and all earlier ticks are decided and their runs have ended. StartDeadline counts from that time. It
	// defaults to the time until the next common instant of the parents' schedules, at most 1h. If a parent's tick fails or does not run, the job has no
	// such tick. A job with After must not set Schedule, Location, Except, ExceptDates, StartsAt, ExpiresAt, Jitter or CatchUp.
	After []string
	// Jitter is the maximum delay of a tick. The delay of each tick is computed from a hash of job and tick, so it is the same on every replica. It
	// never reaches the next tick.
	Jitter time.Duration
	// Runner runs the job. Required.
	Runner Runner
	// Parallel is the maximum number of runs at once in the cluster. PerTick is the number of runs for each tick. PerReplica is the maximum number of
	// runs at once on one replica. Each defaults to 1.
	Parallel, PerTick, PerReplica int
	// Pool is a semaphore that jobs share. A run of the job also needs a slot of the pool. Defaults to none.
	Pool Pool
	// Overlap is the policy for a tick that finds all slots held. Defaults to OverlapSkip.
	Overlap Overlap
	// StartDeadline is the maximum time from the tick plus its jitter to the start of the run. Afterwards the tick is missed. Defaults to the time until
	// the next tick, at most 1h. With OverlapQueue it defaults to 1h.
	StartDeadline time.Duration
	// CatchUp selects the ticks that run after their StartDeadline, if it passed because no replica was up or Redis did not answer. Defaults to CatchUpNone.
	CatchUp CatchUp
	// Timeout is the time after which a run is stopped. Defaults to 24h; negative means no timeout. KillGrace is the time from the stop of a run until
	// it is killed. Defaults to 10s; negative means that the run is killed at once.
	Timeout, KillGrace time.Duration
	// StartTimeout is the maximum time until the Runner calls [Run.Began]. If the work has not begun by then, the grant is given back. If StartTimeout
	// is zero, there is no limit, and the work begins when the Runner is called.
	StartTimeout time.Duration
	// Retry repeats failed runs. Defaults to no retry.
	Retry Retry
	// Recover runs a tick again if its run was interrupted. Defaults to no recovery.
	Recover Recover
	// Lease is the time after which the cluster replaces a replica that has died. Defaults to 30s; at least 1s, at most 24h.
	Lease time.Duration
	// Where has the labels that a replica needs to run the job: see [Config.Labels]. The other replicas only record ticks that no replica runs. Defaults
	// to none: any replica may run the job.
	Where Labels
	// OutlivesLease lets a run go on after its lease is lost. Another replica may then start a second run, and only the fencing token protects the
	// resource. By default, a run is stopped before its lease ends.
	OutlivesLease bool
}

// A Runner does the work of a job.
type Runner interface {
	// Run does the work, and returns when all processes and goroutines of the work have ended. When ctx ends, Run stops the work gracefully;
	// context.Cause returns the reason: [ErrTimeout], [ErrDrain], [ErrLost], [ErrCanceled] or [ErrReplaced]. When run.Kill ends, Run kills the work. If
	// another process has stopped the work in time because the lease was about to end, Run returns a Result with the Err ErrLost.
	Run(ctx context.Context, run *Run) Result
}

// A Run is one execution of a job.
type Run struct {
	ID      string // the id of the run and of its lease
	Job     string
	Replica string
	Tick    time.Time // zero for a run outside the schedule
	Local   time.Time // the local time that identifies the tick, with UTC as its zone; zero if Tick identifies it
	// Due is the earliest start: Tick plus the jitter, or for a job with After the end of the parents' runs. It is zero for recoveries and manual runs.
	Due         time.Time
	Trigger     string // schedule, catch_up, recovery or manual
	Slot, Slots int
	Attempt     int             // 1 for the first attempt of a tick; each retry and each recovery adds 1
	Token       int64           // the fencing token; 0 without a lock
	Lease       Lease           // the run must have ended before the lease does; nil without a lock, or with OutlivesLease
	Kill        context.Context // ends when the work must be killed at once
	Logger      hclog.Logger    // adds the keys of the run to each line

	startBy time.Time // the latest end of the wait for a slot of the pool; if zero, Job.poolWait bounds the wait
	// insist is the instant until which a failed start is repeated, because no other replica can start the run. If it is zero, the grant is given back
	// after a failed start.
	insist   time.Time
	followed bool   // a child of the job needs the outcome of this tick
	start    *start // the start of the current try
	life     *life  // the phase of the run
	returned bool   // the end of the run is returned to a caller, which logs it
}

// newRunID returns a random id of 16 characters with 80 random bits.
func newRunID() string { return strings.ToLower(rand.Text()[:16]) }

// A Lease is the lease of a run, as its [Runner] sees it. A Runner can pass the deadline to another process, which kills the work in time even if
// this process is paused. [election.Term] implements it.
type Lease interface {
	// Length returns the length of the lease without renewal.
	Length() time.Duration
	// Deadline returns the instant at which the lease ends unless it is renewed, by CLOCK_BOOTTIME.
	Deadline() time.Duration
	// OnExtend calls f with the new deadline after each renewal, until stop is called. f must return at once.
	OnExtend(f func(deadline time.Duration)) (stop func())
}

// A Result is the result of a run. The run succeeded if Err is nil.
type Result struct {
	Err      error
	ExitCode *int   // the exit status of a command; may be nil
	Signal   string // the signal that ended a command
	Output   []byte // the tail of the output, for the journal
	// OutputCut is the number of bytes of output that are missing before Output.
	OutputCut int64
	// EndedAgo is the time from the end of the work to the return of Run. It is positive only if another process killed the work while this process was
	// paused.
	EndedAgo time.Duration
	// LeftBehind names processes that the work left behind when it ended by itself, and that had to be stopped. If LeftBehind is not empty, a request to
	// stop the run does not change its outcome.
	LeftBehind string
}

// A Func is a [Runner] that calls a Go function. The function must return when its context ends. A goroutine cannot be killed, so after the loss of a
// lease only the fencing token protects the resource. A run fails if the function returns an error or panics.
type Func func(ctx context.Context, run *Run) error

// Run calls f.
func (f Func) Run(ctx context.Context, run *Run) Result { return Result{Err: f(ctx, run)} }

var jobName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

func (j Job) withDefaults() Job {
	j.Parallel = orDefault(j.Parallel, 1)
	j.PerTick = orDefault(j.PerTick, 1)
	j.PerReplica = orDefault(j.PerReplica, 1)
	j.Timeout = orDefault(j.Timeout, 24*time.Hour)
	j.KillGrace = max(orDefault(j.KillGrace, 10*time.Second), 0)
	j.Lease = orDefault(j.Lease, 30*time.Second)
	j.Retry = j.Retry.withDefaults()
	j.Overlap = orDefault(j.Overlap, OverlapSkip)
	j.CatchUp = j.CatchUp.withDefaults()
	return j
}

func (j Job) validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("job %s: "+format, append([]any{j.Name}, args...)...))
		}
	}
	fault(!jobName.MatchString(j.Name), "a name is made of letters, digits, _ and -")
	fault(j.Runner == nil, "Runner is missing")
	fault(j.Parallel < 1 || j.Parallel > 1000, "Parallel is %d: it must be from 1 to 1000", j.Parallel)
	fault(j.PerTick < 1 || j.PerTick > j.Parallel, "PerTick is %d: it must be from 1 to Parallel, %d", j.PerTick, j.Parallel)
	fault(j.PerReplica < 1 || j.PerReplica > j.Parallel, "PerReplica is %d: it must be from 1 to Parallel, %d", j.PerReplica, j.Parallel)
	fault(j.Lease < time.Second || j.Lease > election.MaxLease, "Lease is %v: it must be from 1s to %v", j.Lease, election.MaxLease)
	fault(j.Retry.findFault() != "", "%s", j.Retry.findFault())
	fault(j.Overlap.findFault() != "", "%s", j.Overlap.findFault())
	fault(j.Pool.findFault() != "", "%s", j.Pool.findFault())
	fault(j.CatchUp.findFault(j.PerTick) != "", "%s", j.CatchUp.findFault(j.PerTick))
	fault(j.Recover.findFault(j.PerTick) != "", "%s", j.Recover.findFault(j.PerTick))
	fault(j.afterFault() != "", "%s", j.afterFault())
	fault(j.Jitter < 0 || j.StartDeadline < 0 || j.StartTimeout < 0, "Jitter, StartDeadline and StartTimeout must not be negative")
	return errors.Join(faults...)
}
