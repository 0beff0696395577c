package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/scheduler/run"
)

// A Claimer claims ticks for a replica, so that each tick runs on one replica. [election.Elector] implements it.
type Claimer interface {
	Claim(ctx context.Context, claims []election.Claim) []election.Result
	Withdraw(c election.Claim)
	AwaitWithdrawal(ctx context.Context, c election.Claim) error
	Inspect(ctx context.Context, requests []election.InspectRequest) []election.State
	DeleteOrphans(ctx context.Context, job string, runs ...string) error
	Now() (now time.Time, ok bool)
}

// GrantEvents publishes grants, so that other replicas need not claim the granted ticks. [election.Elector] implements it. Events may get lost: the
// scheduler uses them only to save requests and time.
type GrantEvents interface {
	// Publish publishes terms: begun has terms that have begun or were given back, ended has ended terms. Several goroutines call Publish, one at a time.
	Publish(ctx context.Context, begun, ended []*election.Term) error
	// Subscribe calls f with the events of all replicas, from one goroutine, until ctx ends.
	Subscribe(ctx context.Context, f func([]election.GrantEvent))
}

// A Request asks the cluster for one run of a job outside its schedule. Times are by the clock of Redis.
type Request struct {
	ID, Job string
	// Tick, if not zero, is a past tick of the job that is to run again. It must be an instant of the job's schedule.
	Tick time.Time
	// No replica starts the run at Expires or later.
	Created, Expires time.Time
}

// An Answer reports the progress of a [Request]. An empty Outcome means that Replica has taken the request and waits for a slot.
type Answer struct {
	Request string
	// Outcome is Running when the run was started. Skipped, Missed and Failed mean that the request is decided without a run, for the given Reason.
	Outcome        run.Outcome
	Reason         run.Reason
	Replica, RunID string
}

// Requests delivers the trigger requests of users.
type Requests interface {
	// Subscribe calls f with requests, from one goroutine, until ctx ends. It may pass the same request several times.
	Subscribe(ctx context.Context, f func([]Request))
	// ClaimTrigger grants a request to at most one replica at a time: see [election.Elector.ClaimTrigger].
	ClaimTrigger(ctx context.Context, request election.TriggerRequest) election.Result
	// Answer sends an answer to the requester. It must return soon, and must be safe for concurrent use.
	Answer(ctx context.Context, a Answer) error
}

// A Config has the jobs of a [Scheduler] and the services that it uses.
type Config struct {
	Jobs []Job
	// Claimer is required, except for [Scheduler.RunNow] without a lock.
	Claimer Claimer
	Journal run.Journal // defaults to none
	// Streak returns keys and values about the failures of a job since its last ok run, for the log line of a failed run. It must be safe for concurrent
	// use. Defaults to none.
	Streak      func(ctx context.Context, job string) []any
	GrantEvents GrantEvents // defaults to none: each replica claims each tick
	Pools       run.Pools   // required if a job has a Pool, except for [Scheduler.RunNow] without a lock
	// Requests delivers the requests for runs outside the schedule. Defaults to none.
	Requests Requests
	// Labels are the labels of this replica, which runs only jobs whose Where is a subset of them and [ReplicaLabel]. Defaults to none.
	Labels Labels
	// Peers returns the identity of this replica, and the identities of all live replicas with the given labels. To spread the ticks over the replicas,
	// each tick ranks the replicas differently, and a replica with a later rank claims a few milliseconds later. Peers is called by one goroutine at a
	// time. Defaults to none: all replicas claim at once.
	Peers func(where Labels) (self string, all []string)
	// Gone reports whether the replica with this identity from Peers is no longer registered. A replica that is still registered may withdraw a claim whose
	// answer it never received. Therefore the run of such a claim is not recorded as abandoned before the start deadline. Gone must be safe for concurrent use.
	// If Gone is nil, every replica counts as gone.
	Gone func(identity string) bool
	// Logger defaults to none.
	Logger hclog.Logger
	// Replica names this replica in records and logs. Defaults to "replica".
	Replica string
	// MaxRunning is the maximum number of runs at once on this replica. A replica with MaxRunning runs leaves ticks to the other replicas. Defaults to
	// 100.
	MaxRunning int
	// Ready reports whether runs may be started now. While it returns false, this replica leaves ticks to the other replicas. It is called often, by one
	// goroutine at a time. Defaults to always true.
	Ready func() bool
	// Probe returns an error if this machine cannot start programs. It is called if the Err of a [Result] wraps [run.ErrNotStarted], if a run has not begun
	// within its [Job.StartTimeout], and before each requested run. If Probe fails, this replica stops claiming and calls Probe after growing pauses until it
	// succeeds. It is called by one goroutine at a time. Defaults to none: each Err that wraps ErrNotStarted then stops the claims of this replica for a pause.
	Probe func() error
	// DrainTimeout bounds the time for which a drain waits for running jobs, including their KillGrace. Defaults to 25s.
	DrainTimeout time.Duration
	// Clock is the wall clock of this replica. It is used until the clock of Redis is known. Defaults to time.Now.
	Clock func() time.Time
}

// forRuns returns the part of the configuration that package run needs. now is the clock of Redis. abort ends when runs must be killed at once.
func (c *Config) forRuns(now func() time.Time, abort context.Context) run.Config {
	of := run.Config{Replica: c.Replica, Logger: c.Logger, Now: now, Abort: abort, Journal: c.Journal, Streak: c.Streak, Pools: c.Pools, Probe: c.Probe}
	if c.GrantEvents != nil {
		of.Publish = c.GrantEvents.Publish
	}
	return of
}

// ErrNoJob means that the job is not configured.
var ErrNoJob = errors.New("no such job")

var errNoClaimer = errors.New("scheduler: Config.Claimer is missing")

func (c *Config) poolFault(jobs []Job) error {
	if c.Pools != nil || c.Claimer == nil {
		return nil
	}
	for _, j := range jobs {
		if j.Pool.Name != "" {
			return fmt.Errorf("job %s: it has a Pool, and Config.Pools is missing", j.Name)
		}
	}
	return nil
}

func (c *Config) ownIdentity() string {
	if c.Peers == nil {
		return ""
	}
	self, _ := c.Peers(nil)
	return self
}

// missedReason returns the reason for which a tick of a job was missed. On a replica without the job's labels, it replaces ReasonDown by ReasonLabels
// if no live replica has the labels. A tick of a job for one replica was missed because that one was down.
func (c *Config) missedReason(t *task, reason run.Reason) run.Reason {
	if reason == run.ReasonDown && t.Elsewhere && !t.isOfOne() && c.Peers != nil {
		if _, fit := c.Peers(t.Where); len(fit) == 0 {
			return run.ReasonLabels
		}
	}
	return reason
}

const (
	// rankStep is the delay of a claim per rank. It is about the time that a grant and its event take.
	rankStep = 5 * time.Millisecond
	// maxRankDelay is the maximum delay, for the last ranks in a large cluster.
	maxRankDelay = 100 * time.Millisecond
	// groups is the number of groups of jobs, by a hash of the job's name. If ticks of many jobs are due at once, a replica orders its claims by group:
	// ascending for ticks for which it has the first rank, descending for all other ticks. So two replicas begin with different ticks, and a replica need not
	// claim most of the ticks for which another replica has the first rank.
	groups = 16
)

// rankOf returns the rank of self for a tick of a job: the number of peers that claim before self. It uses rendezvous hashing (Thaler and Ravishankar 1998),
// so that each peer is first for an equal share of the ticks, even with few jobs.
func rankOf(job string, tick time.Time, self string, peers []string) int {
	place := append(make([]byte, 0, 128), job...)
	place = append(strconv.AppendInt(append(place, 0), tick.Unix(), 10), 0)
	weight := func(peer string) uint64 { return xxhash.Sum64(append(place, peer...)) }
	n, own := 0, weight(self)
	for _, p := range peers {
		if w := weight(p); p != self && (w > own || w == own && p > self) {
			n++
		}
	}
	return n
}

// turnDelay returns the delay of this replica's claim of a tick, by its rank. The first PerTick ranks claim without a delay. The ticks of a job for one replica
// are not shared.
func (c *Config) turnDelay(t *task, tick time.Time) time.Duration {
	if c.Peers == nil || t.isOfOne() {
		return 0
	}
	self, all := c.Peers(t.Where)
	place := max(rankOf(t.Name, tick, self, all)-(t.PerTick-1), 0)
	group := time.Duration(xxhash.Sum64String(t.Name) % groups)
	if place > 0 {
		group = groups - group
	}
	return min(time.Duration(place)*rankStep, maxRankDelay) + group*time.Nanosecond
}

const (
	shortestPause = 50 * time.Millisecond
	longestPause  = 2 * time.Second
)

func newBackoff() *backoff.Backoff { return backoff.New(shortestPause, longestPause) }
