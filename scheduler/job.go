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

// A Job is a Runner, the schedule at whose ticks it runs, and the policies for its runs.
type Job struct {
	// Name matches [A-Za-z0-9][A-Za-z0-9_-]{0,127}. It is the job's identity on all replicas.
	Name string
	// Schedule has one or more expressions: see package cronspec. Location is the zone in which they are read; it defaults to UTC.
	// [cronspec.LoadLocation] returns the same zone on every machine.
	Schedule []string
	Location *time.Location
	// Except has expressions, and ExceptDates days in Location such as "2026-12-25", whose instants are not ticks of the job: they are neither run
	// nor recorded. No tick is before StartsAt, or at or after ExpiresAt; zero is no bound. Settings that leave no tick at all are an error; a job
	// that has expired is not.
	Except, ExceptDates []string
	StartsAt, ExpiresAt time.Time
	// After, instead of a Schedule, has the names of the parents: the job runs once for each tick that all parents ended ok, with the same tick. The
	// tick is due when every parent has decided it and all earlier ticks, and all their runs have ended. StartDeadline counts from then, and defaults
	// to the time until the next common instant of their schedules, at most 1h. If a parent fails or is not run, there is no tick. A job with After
	// must not set Schedule, Location, Except, ExceptDates, StartsAt, ExpiresAt, Jitter or CatchUp.
	After []string
	// Jitter bounds the delay of each tick. The delay is a hash of the job and the tick, the same on every replica, and never reaches the next tick.
	Jitter time.Duration
	// Runner runs the job. Required.
	Runner Runner
	// Parallel is the maximum number of runs at once in the cluster, PerTick the number of runs for one tick, and PerReplica the maximum number of
	// runs at once on one replica. Each defaults to 1.
	Parallel, PerTick, PerReplica int
	// Pool is a semaphore that jobs share: a run also needs one of its slots. Defaults to none.
	Pool Pool
	// Overlap decides a tick that finds all slots held. Defaults to OverlapSkip.
	Overlap Overlap
	// StartDeadline is the maximum delay of a start, after the jitter; a later tick is missed. Defaults to the time until the next tick, at most 1h,
	// or with OverlapQueue to 1h.
	StartDeadline time.Duration
	// CatchUp selects the ticks that run after their StartDeadline, if it passed because no replica was up or Redis did not answer. Defaults to CatchUpNone.
	CatchUp CatchUp
	// Timeout stops a run, and KillGrace is the time until a stopped run is killed. They default to 24h and 10s. A negative Timeout is no timeout; a
	// negative KillGrace kills at once.
	Timeout, KillGrace time.Duration
	// StartTimeout bounds the time until the Runner calls [Run.Begin]. A grant whose work has not begun by then is given back. Defaults to no bound:
	// then a run has begun when its Runner is called.
	StartTimeout time.Duration
	// Retry repeats a run that failed.
	Retry Retry
	// Recover runs a tick again if its run was interrupted.
	Recover Recover
	// Lease is the time after which the cluster replaces a replica that has died. Defaults to 30s; at least 1s, at most 24h.
	Lease time.Duration
	// Where has the labels that a replica needs to run the job: see [Config.Labels]. The other replicas only make sure that each tick has an outcome.
	// Defaults to none: any replica may run it.
	Where Labels
	// OutlivesLease lets a run go on when its lease is lost. Another run may then start beside it, and only the token protects. By default the run is
	// stopped in time.
	OutlivesLease bool
}

// A Runner runs a job. Its Run returns when nothing of the run is left: no process, no goroutine.
type Runner interface {
	// Run begins to stop when ctx ends; context.Cause returns the reason: [ErrTimeout], [ErrDrain], [ErrLost], [ErrCanceled] or [ErrReplaced]. It
	// stops by force when run.Kill ends. A Result whose Err is ErrLost without that cause reports a run that another party, such as a warden, stopped
	// in time.
	Run(ctx context.Context, run *Run) Result
}

// A Run is one execution of a job.
type Run struct {
	ID      string // the id of the run and of its lease
	Job     string
	Replica string
	Tick    time.Time // zero outside the schedule
	Local   time.Time // the local time, as if it were UTC, that identifies the tick on every replica; zero if Tick does
	// Due is the earliest start: Tick after its jitter, or the end of the parents' runs. It is zero for recoveries and manual runs.
	Due         time.Time
	Trigger     string // schedule, catch_up, recovery or manual
	Slot, Slots int
	Attempt     int             // the attempt of the tick: 1, and one more for each try after a failed or interrupted one
	Token       int64           // the fencing token; 0 without a lock
	Lease       Lease           // the run must be dead before it ends; nil without a lock, or if the run outlives it
	Kill        context.Context // ends when the run must be dead at once
	Logger      hclog.Logger    // has the keys of the run

	startBy time.Time // until when the run may wait for a slot of its pool; zero: as long as the job allows
	// insist is the instant until which the start is repeated, because no other replica can begin the run. Zero: the grant is given back instead.
	insist   time.Time
	followed bool   // a child of the job needs the outcome of this tick
	start    *start // the start of this try
	life     *life  // the phase of the run
	returned bool   // its end is returned to a caller, and not logged
}

// newRunID returns a new id for a run: 16 characters, 80 random bits.
func newRunID() string { return strings.ToLower(rand.Text()[:16]) }

// A Lease is the view that a [Runner] has of the lease of its run. With it, the run can be ended in time even if this process no longer can.
// [election.Term] is one.
type Lease interface {
	// Length returns the length of the lease without renewal.
	Length() time.Duration
	// Deadline returns the instant at which the lease ends unless it is renewed, by CLOCK_BOOTTIME.
	Deadline() time.Duration
	// OnExtend calls f with the new deadline after each renewal, until stop is called. f must return at once.
	OnExtend(f func(deadline time.Duration)) (stop func())
}

// A Result is the end of a run. It is ok if Err is nil.
type Result struct {
	Err      error
	ExitCode *int   // the exit status of a command; may be nil
	Signal   string // the signal that ended a command
	Output   []byte // the tail of the output, for the journal
	// OutputCut is the number of bytes of output before that tail.
	OutputCut int64
	// EndedAgo is the time from the end of the work to the return of Run. It is positive if this process stood still in between, and another one has
	// killed the work; otherwise 0.
	EndedAgo time.Duration
	// LeftBehind names the processes that the work left behind when it ended by itself, and that had to be stopped; "" for none. A stop of the run
	// after that end does not change its outcome.
	LeftBehind string
}

// A Func is a [Runner] that calls a Go function. The function must return when its context ends: a goroutine cannot be killed, so after the loss of a
// lease only the token protects. An error is a failed run, and so is a panic, here as in any other Runner.
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
