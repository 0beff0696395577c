package scheduler

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
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
