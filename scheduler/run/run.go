// Package run executes the runs of a scheduler, from the grant of a tick to the release of its lease. It also has the vocabulary of runs: [Run],
// [Runner], [Result], [Outcome], [Reason] and [Record]. The package is independent of schedules.
package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
)

// A Runner does the work of a job.
type Runner interface {
	// Run does the work, and returns when all processes and goroutines of the work have ended. When ctx ends, Run stops the work gracefully;
	// context.Cause returns the reason: [ErrTimeout], [ErrDrain], [ErrLost], [ErrCanceled] or [ErrReplaced]. When run.Kill ends, Run kills the work.
	// If another process, such as the warden of cronclave, has stopped the work because the lease was about to end, Run returns a Result with the Err
	// ErrLost.
	Run(ctx context.Context, run *Run) Result
}

// A Job has the settings of a job that its runs need.
type Job struct {
	Runner Runner
	// Timeout is the time after which a run is stopped; 0 or less means no timeout. KillGrace is the time from the stop of a run until it is killed.
	Timeout, KillGrace time.Duration
	// StartTimeout is the maximum time until the Runner calls [Run.Began]. If it is zero, the work begins when the Runner is called.
	StartTimeout time.Duration
	// Lease is the length of the lease without renewal. With OutlivesLease, a run goes on after its lease is lost.
	Lease         time.Duration
	OutlivesLease bool
	// Retries is the number of the last attempt that may be repeated after a failure. RetryPause returns the pause after an attempt, by its number.
	Retries    int
	RetryPause func(number int) time.Duration
	// Recovers reports whether an interrupted attempt of a tick may be followed by another attempt. It is nil if runs of the job are not recovered.
	Recovers func(tick time.Time, attempt int) bool
	// Pool is the name of the job's pool, or "". PoolWait is the maximum wait for a slot if the [Grant] has no StartBy.
	Pool      string
	PoolSlots int
	PoolWait  time.Duration
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
	// Granted is the time at which this replica knew the grant, or was asked for a run without a lock. It is zero for a retry.
	Granted time.Time
	// Traceparent is the W3C trace context for the work, or "". OnBegan is called when the work has begun, unless it is nil. Both may be set by a Runner
	// that wraps another one.
	Traceparent string
	OnBegan     func()

	start *start
}

// Begin must be called by the Runner of a job with a StartTimeout, right before the step by which its work begins, such as the start of a process. If
// Begin returns an error, the grant was given back: the Runner must not begin the work, and must return the error. After the step, the Runner calls
// [Run.Began]. If the step failed because this replica lacks a resource, the Runner returns an error that wraps [ErrNotStarted]. For a job without a
// StartTimeout, Begin does nothing.
func (r *Run) Begin() error {
	if r.start == nil || r.start.is(started) {
		return nil
	}
	return r.start.enterStarting()
}

// Began must be called by the Runner right after the step by which its work begins: see [Run.Begin].
func (r *Run) Began() {
	if r.start != nil {
		r.start.confirmStarted()
	}
	if r.OnBegan != nil {
		r.OnBegan()
	}
}

// The causes with which the context of a run ends.
var (
	ErrTimeout  = errors.New("the job's timeout has passed")
	ErrDrain    = errors.New("the replica is draining")
	ErrLost     = errors.New("the lease was lost")
	ErrCanceled = errors.New("the run was canceled")
	ErrReplaced = errors.New("a newer tick replaces the run")
)

var (
	// ErrNotStarted is wrapped by the Err of a [Result] if the Runner could not begin its work because this replica lacks a resource, such as
	// processes or file descriptors. The grant is then given back, so that another replica can run the tick. If the Runner returns ErrNotStarted
	// after its work has begun, the run counts as failed.
	ErrNotStarted = errors.New("not started")
	// errStartTimeout is the cause of the stop if the work did not begin within Job.StartTimeout.
	errStartTimeout = fmt.Errorf("%w within the time for that", ErrNotStarted)
	// errCalledOff is returned by Run.Begin if the run was called off before.
	errCalledOff = fmt.Errorf("%w: the run was called off", ErrNotStarted)
)

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
	// LeftBehind names processes that the work left behind when it ended by itself, and that had to be stopped. If it is not empty, a request to stop
	// the run does not change the outcome, because the work had ended before.
	LeftBehind string
	// HTTPStatus is the status code of an HTTP answer, or 0.
	HTTPStatus int
}

// A Func is a [Runner] that calls a Go function. The function must return when its context ends. A goroutine cannot be killed, so after the loss of a
// lease only the fencing token protects the resource. A run fails if the function returns an error or panics.
type Func func(ctx context.Context, run *Run) error

// Run calls f.
func (f Func) Run(ctx context.Context, run *Run) Result { return Result{Err: f(ctx, run)} }
