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

// Job is a Runner, the schedule at whose ticks it runs, and the policies for its runs.
type Job struct {
	// Name is [A-Za-z0-9][A-Za-z0-9_-]{0,127}. All replicas know the job by it.
	Name string
	// Schedule is one or more expressions: see package cronspec. Location is the zone they are read in; defaults to UTC.
	// [cronspec.LoadLocation] gives the same zone on every machine.
	Schedule []string
	Location *time.Location
	// Except are expressions, and ExceptDates days of Location's clock such as "2026-12-25", whose instants are no ticks of the job: they are neither run
	// nor recorded. No tick is before StartsAt, and none at or after ExpiresAt; zero is no bound. Settings that leave no tick at all are a fault; a job that
	// has expired is not.
	Except, ExceptDates []string
	StartsAt, ExpiresAt time.Time
	// After, instead of a Schedule, are the jobs that this one runs after: once for each tick that all of them have ended ok, with that tick as its own. A tick is
	// due when all of them have decided it, and every one before it, and no run of those goes on; so StartDeadline counts from then, and defaults to
	// the time until the next instant that all their schedules name, at most 1h. Where one of them fails, or is not run, there is no tick. It takes
	// nothing else that is about a schedule.
	After []string
	// Jitter delays each tick by a hash of the job and the tick, the same on every replica, never past the next tick.
	Jitter time.Duration
	// Runner runs the job. Required.
	Runner Runner
	// Parallel is how many runs there may be at once in the cluster, PerTick how many of them for one tick, PerReplica how many
	// on one replica. Each defaults to 1.
	Parallel, PerTick, PerReplica int
	// Pool is a semaphore that jobs share: a run also needs one of its slots. Defaults to none.
	Pool Pool
	// Overlap decides a tick that finds all slots held. Defaults to OverlapSkip.
	Overlap Overlap
	// StartDeadline is how late a tick may start after its jitter, before it is missed. Defaults to the next tick, at most 1h; with OverlapQueue to 1h.
	StartDeadline time.Duration
	// CatchUp decides the ticks that are past their StartDeadline because no replica, or no server, was there. Defaults to CatchUpNone.
	CatchUp CatchUp
	// Timeout stops a run, and KillGrace later kills it. They default to 24h and 10s; a negative Timeout is none,
	// a negative KillGrace kills at once.
	Timeout, KillGrace time.Duration
	// StartTimeout is how long the Runner may take to begin, by [Run.Begin]: a grant whose work has not begun by then is given back. Defaults to none: then a run has
	// begun when its Runner is called.
	StartTimeout time.Duration
	// Retry has a run that failed tried again.
	Retry Retry
	// Recover has a tick run again whose run was interrupted.
	Recover Recover
	// Lease is how long the cluster waits for a replica that has died. Defaults to 30s; at least 1s, at most 24h.
	Lease time.Duration
	// Where are the labels that a replica must have to run the job: see [Config.Labels]. The others only see to it that each tick has an
	// outcome. Defaults to none: any replica may run it.
	Where Labels
	// OutlivesLease lets a run go on when its lease is lost: then another may start beside it, and only the token protects. By
	// default the run is stopped in time.
	OutlivesLease bool
}

// Runner runs a job. It returns when nothing of the run is left: no process, no goroutine.
type Runner interface {
	// Run starts to stop when ctx ends; context.Cause is the reason: [ErrTimeout], [ErrDrain], [ErrLost], [ErrCanceled] or [ErrReplaced]. It stops by force
	// when run.Kill ends. A Result whose Err is ErrLost without that cause reports a run that another party, such as a warden, has stopped in time.
	Run(ctx context.Context, run *Run) Result
}

// Run is one execution of a job.
type Run struct {
	ID          string // also the lease id
	Job         string
	Replica     string
	Tick        time.Time // zero outside the schedule
	Local       time.Time // the local time, as if it were UTC, that identifies the tick on every replica; zero where Tick does
	Due         time.Time // from when it could start: its jitter after Tick, or when the jobs before it had ended; zero for others than ticks as they come due
	Trigger     string    // schedule, catch_up, recovery, manual
	Slot, Slots int
	Attempt     int             // of its tick: 1, and more for each try after one that failed, or was interrupted
	Token       int64           // the fencing token; 0 without a lock
	Lease       Lease           // by whose end the run must be dead; nil without a lock, or if the run outlives it
	Kill        context.Context // ends when the run must be dead at once
	Logger      hclog.Logger    // with the run's keys

	startBy  time.Time // until when it may wait for a slot of its pool; zero: as long as its job says
	insist   time.Time // until when its start is tried again and again, since no other replica can begin it; zero: its grant is given back instead
	followed bool      // some job runs after this one's tick
	start    *start    // of this try
	life     *life     // where it is
	returned bool      // its end is returned to a caller, and is not for the log
}

// newRunID makes an identity for a run: 16 characters, 80 random bits.
func newRunID() string { return strings.ToLower(rand.Text()[:16]) }

// Lease is a [Runner]'s view of the lease of its run, to have the run ended in time even if this process can't any more.
// [election.Term] is one.
type Lease interface {
	// Length is how long it lasts without renewal.
	Length() time.Duration
	// Deadline is the instant at which it ends if no renewal comes through, by CLOCK_BOOTTIME.
	Deadline() time.Duration
	// OnExtend has f called with the new deadline after each renewal, until stop is called. f must return at once.
	OnExtend(f func(deadline time.Duration)) (stop func())
}

// Result is how a run ended. It is ok if Err is nil.
type Result struct {
	Err      error
	ExitCode *int   // of a command
	Signal   string // that ended a command
	Output   []byte // the tail of it, for the journal
	// OutputCut is how many bytes of output were before that tail.
	OutputCut int64
	// EndedAgo is how long before the return of Run the work has ended, where this process stood still in between and another has killed it; else 0.
	EndedAgo time.Duration
	// LeftBehind names the processes that the work left behind when it ended by itself, and that had to be stopped; "" for none. A stop of the run after that end
	// does not change its outcome.
	LeftBehind string
}

// Func is a [Runner] of a Go function. It must return when its context ends: a goroutine cannot be killed, so after the loss of a lease only the token
// protects. An error is a failed run, and so is a panic, in this as in any other Runner.
type Func func(ctx context.Context, run *Run) error

// Run calls the function.
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
	fault(j.Retry.fault() != "", "%s", j.Retry.fault())
	fault(j.Overlap.fault() != "", "%s", j.Overlap.fault())
	fault(j.Pool.fault() != "", "%s", j.Pool.fault())
	fault(j.CatchUp.fault(j.PerTick) != "", "%s", j.CatchUp.fault(j.PerTick))
	fault(j.Recover.fault(j.PerTick) != "", "%s", j.Recover.fault(j.PerTick))
	fault(j.afterFault() != "", "%s", j.afterFault())
	fault(j.Jitter < 0 || j.StartDeadline < 0 || j.StartTimeout < 0, "Jitter, StartDeadline and StartTimeout must not be negative")
	return errors.Join(faults...)
}
