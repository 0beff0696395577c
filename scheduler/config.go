package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
)

// Claimer decides which replica runs a tick. [election.Elector] is one.
type Claimer interface {
	Claim(ctx context.Context, claims []election.Claim) []election.Result
	Withdraw(c election.Claim)
	AwaitWithdrawal(ctx context.Context, c election.Claim) error
	Inspect(ctx context.Context, requests []election.InspectRequest) []election.State
	DeleteOrphans(ctx context.Context, job string, runs ...string) error
	Now() (now time.Time, ok bool)
}

// Journal keeps the outcomes of ticks and runs, for people. Correctness does not depend on it.
type Journal interface {
	// Record keeps records; it must be idempotent by RunID. It is called by one goroutine at a time, and again
	// with the same records after an error.
	Record(ctx context.Context, records []Record) error
}

// GrantEvents publish which replica won a tick, so that the others need not claim it. [election.Elector] has them.
// Correctness does not depend on them.
type GrantEvents interface {
	// Publish publishes terms whose runs have begun, or that were returned, and those that have ended of jobs whose ticks wait for a slot. It is called by
	// several goroutines.
	Publish(ctx context.Context, begun, ended []*election.Term) error
	// Subscribe calls f, from one goroutine, until ctx ends.
	Subscribe(ctx context.Context, f func([]election.GrantEvent))
}

// Config is the jobs of a [Scheduler] and the services that it uses.
type Config struct {
	Jobs []Job
	// Claimer is required, but for [Scheduler.RunNow] without a lock.
	Claimer Claimer
	Journal Journal // defaults to none
	// Streak returns the failures of a job since it was last ok, as keys and values for the log line of a run that failed and is recorded. It is called by
	// several goroutines. Defaults to none.
	Streak      func(ctx context.Context, job string) []any
	GrantEvents GrantEvents // defaults to none: each replica asks for each tick
	Pools       Pools       // required if a job has a Pool, but for [Scheduler.RunNow] without a lock
	// Requests defaults to none: runs outside the schedule cannot be requested.
	Requests Requests
	// Labels are matched with Job.Where: this replica runs those jobs of which it has all labels. Defaults to none.
	Labels Labels
	// Peers returns the replicas that are alive and have all these labels, by identities that differ, and which of them this one is. For each tick they take
	// ranks, and a later rank asks a few milliseconds later, so that wins are spread. Called by one goroutine at a time. Defaults to none: all ask at once.
	Peers func(where Labels) (self string, all []string)
	// Gone returns whether a replica, by its identity of Peers, is registered no more. A replica that is not gone may yet withdraw a claim of which it never
	// heard that it was granted: until its start deadline the run is not recorded as abandoned. It may be called at any time. Defaults to always.
	Gone func(identity string) bool
	// Logger defaults to none.
	Logger hclog.Logger
	// Replica names this replica in records and logs. Defaults to "replica".
	Replica string
	// MaxRunning is how many runs this replica has at once; a full replica leaves its ticks to the others. Defaults to 100.
	MaxRunning int
	// Ready returns whether runs may be started now; while they may not, the replica leaves its ticks to the others, as a full one does. Called by one
	// goroutine at a time, often. Defaults to always.
	Ready func() bool
	// Probe returns an error if this machine cannot start programs. It is called when a Runner's result wraps [ErrNotStarted], or a run has not begun within its
	// [Job.StartTimeout]. If it fails the replica claims nothing, and calls it again after growing pauses until it succeeds. One call is made at a time.
	// Defaults to none: then each result that wraps ErrNotStarted ends claiming for a pause.
	Probe func() error
	// DrainTimeout is how long a drain waits for running jobs, their kill grace included. Defaults to 25s.
	DrainTimeout time.Duration
	// Clock is the replica's wall clock, used until the server's is known. Defaults to time.Now.
	Clock func() time.Time
}

// ErrNoJob means that a job is not configured.
var ErrNoJob = errors.New("no such job")

var errNoClaimer = errors.New("scheduler: Config.Claimer is missing")
