package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
)

// A Claimer decides which replica runs a tick. [election.Elector] is one.
type Claimer interface {
	Claim(ctx context.Context, claims []election.Claim) []election.Result
	Withdraw(c election.Claim)
	AwaitWithdrawal(ctx context.Context, c election.Claim) error
	Inspect(ctx context.Context, requests []election.InspectRequest) []election.State
	DeleteOrphans(ctx context.Context, job string, runs ...string) error
	Now() (now time.Time, ok bool)
}

// A Journal keeps the outcomes of ticks and runs, for people. Correctness does not depend on it.
type Journal interface {
	// Record keeps records. It must be idempotent by RunID. It is called by one goroutine at a time, and again with the same records after an error.
	Record(ctx context.Context, records []Record) error
}

// GrantEvents publishes which replica won a tick, so that the others need not claim it. [election.Elector] implements it. Correctness does not depend
// on it.
type GrantEvents interface {
	// Publish publishes terms that have begun, or were returned, and terms that have ended of jobs whose ticks wait for a slot. Several goroutines
	// call it, one at a time.
	Publish(ctx context.Context, begun, ended []*election.Term) error
	// Subscribe calls f with the events of all replicas, from one goroutine, until ctx ends.
	Subscribe(ctx context.Context, f func([]election.GrantEvent))
}

// A Config has the jobs of a [Scheduler] and the services that it uses.
type Config struct {
	Jobs []Job
	// Claimer is required, except for [Scheduler.RunNow] without a lock.
	Claimer Claimer
	Journal Journal // defaults to none
	// Streak returns the failures of a job since its last ok run, as keys and values for the log line of a failed run. It must be safe for concurrent
	// use. Defaults to none.
	Streak      func(ctx context.Context, job string) []any
	GrantEvents GrantEvents // defaults to none: each replica claims each tick
	Pools       Pools       // required if a job has a Pool, except for [Scheduler.RunNow] without a lock
	// Requests delivers the requests for runs outside the schedule. Defaults to none.
	Requests Requests
	// Labels are the labels of this replica. It runs every job whose Where is included in them. Defaults to none.
	Labels Labels
	// Peers returns the identities of the live replicas that have all given labels, and the identity of this one. The replicas are ranked for each
	// tick, and a later rank claims a few milliseconds later, which spreads the wins. It is called by one goroutine at a time. Defaults to none: all
	// claim at once.
	Peers func(where Labels) (self string, all []string)
	// Gone reports whether a replica, by its identity from Peers, is no longer registered. A registered replica that never received the answer to its
	// claim may still withdraw it, so its run is not recorded as abandoned before the start deadline. Gone must be safe for concurrent use. Defaults
	// to always true.
	Gone func(identity string) bool
	// Logger defaults to none.
	Logger hclog.Logger
	// Replica names this replica in records and logs. Defaults to "replica".
	Replica string
	// MaxRunning is the maximum number of runs at once on this replica. A full replica leaves its ticks to the others. Defaults to 100.
	MaxRunning int
	// Ready reports whether runs may be started now. While it returns false, the replica leaves its ticks to the others, as a full one does. It is
	// called often, by one goroutine at a time. Defaults to always true.
	Ready func() bool
	// Probe returns an error if this machine cannot start programs. It is called if the result of a Runner wraps [ErrNotStarted], if a run has not
	// begun within its [Job.StartTimeout], and before a requested run. While it fails, the replica claims nothing and calls it again after growing
	// pauses. One call is made at a time. Defaults to none: then each result that wraps ErrNotStarted stops claiming for a pause.
	Probe func() error
	// DrainTimeout bounds the wait of a drain for running jobs, including their kill grace. Defaults to 25s.
	DrainTimeout time.Duration
	// Clock is the wall clock of the replica. It is used until the server's clock is known. Defaults to time.Now.
	Clock func() time.Time
}

// ErrNoJob is returned for a job that is not configured.
var ErrNoJob = errors.New("no such job")

var errNoClaimer = errors.New("scheduler: Config.Claimer is missing")
