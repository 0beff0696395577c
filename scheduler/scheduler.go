// Package scheduler answers *when* and *what*: it runs jobs at the ticks of their schedules, each tick on the one replica
// that wins it (or on as many as the job asks for).
//
// A [Scheduler] is one replica. Its loop takes due ticks from a timeline, claims them together through a [Claimer], and gives
// each grant to the job's [Runner] in a goroutine of its own. What becomes of every tick goes to a [Journal]. All
// replicas with the same jobs and the same Redis form one cluster:
//
//	elector, err := election.New(election.Config{Locks: locks})
//	s, err := scheduler.New(scheduler.Config{
//		Claimer: elector,
//		Jobs: []scheduler.Job{{
//			Name:     "report",
//			Schedule: []string{"0 3 * * *"},
//			Runner:   scheduler.Func(func(ctx context.Context, run *scheduler.Run) error { ... }),
//		}},
//	})
//	err = s.Run(ctx) // until ctx ends, then drains
//
// Ticks are due by the server's clock as far as the claimer knows it; a replica's own clock only decides when to ask.
package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
)

// Claimer decides who runs a tick. [election.Elector] is one.
type Claimer interface {
	Claim(ctx context.Context, claims []election.Claim) []election.Result
	Withdraw(c election.Claim)
	Survey(ctx context.Context, inquiries []election.Inquiry) []election.State
	Bury(ctx context.Context, job string, runs ...string) error
	Now() (now time.Time, ok bool)
}

// Journal keeps what became of ticks and runs, for people. Correctness does not depend on it.
type Journal interface {
	// Record keeps records; it must be idempotent by RunID. It is called by one goroutine at a time, and again
	// with the same records after an error.
	Record(ctx context.Context, records []Record) error
}

// Notices spread who won a tick, so that the other replicas need not ask the server for it. [election.Elector] has them.
// Correctness does not depend on them.
type Notices interface {
	// Tell is called with terms whose runs have begun, or that were returned, and with those that have ended of jobs whose ticks wait for a slot. It is called
	// by several goroutines.
	Tell(ctx context.Context, begun, ended []*election.Term) error
	// Hear calls f, from one goroutine, until ctx ends.
	Hear(ctx context.Context, f func([]election.Notice))
}

// Config says what a [Scheduler] runs, and with whom.
type Config struct {
	Jobs []Job
	// Claimer is required, but for [Scheduler.RunNow] without a lock.
	Claimer Claimer
	Journal Journal // defaults to none
	Notices Notices // defaults to none: each replica asks for each tick
	Pools   Pools   // required if a job has a Pool, but for [Scheduler.RunNow] without a lock
	// Requests defaults to none: nobody can ask for runs outside the schedule.
	Requests Requests
	// Labels are what jobs may ask for by Job.Where: this replica runs those of which it has all labels. Defaults to none.
	Labels Labels
	// Peers tells the replicas that are alive and have all these labels by identities that differ, and which of them this one is. For each
	// tick they take ranks, and a later rank asks a few milliseconds later, so that wins are spread. Called by one goroutine at a time.
	// Defaults to none: all ask at once.
	Peers func(where Labels) (self string, all []string)
	// Logger defaults to none.
	Logger hclog.Logger
	// Replica names this replica in records and logs. Defaults to "replica".
	Replica string
	// MaxRunning is how many runs this replica has at once; a full replica leaves its ticks to the others. Defaults to 100.
	MaxRunning int
	// Ready tells whether runs may be started now; while they may not, the replica leaves its ticks to the others, as a full
	// one does. Called by one goroutine at a time, often. Defaults to always.
	Ready func() bool
	// Probe tells whether this machine can start programs. It is called when a Runner's result wraps [ErrNotStarted], or a run has not begun within its
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

// Scheduler is one replica. Run it once.
type Scheduler struct {
	cfg  Config
	exec *executor
	log  hclog.Logger

	abort    context.Context // ends when running jobs must be killed at once
	abortNow context.CancelFunc
	active   census // runs, each with a goroutine
	claimed  chan claimedBatch
	surveyed chan surveyedBatch
	checked  chan checkedBatch
	finished chan *tick
	heard    chan []election.Notice
	reloads  chan reload
	// requested and errandOver are about runs that somebody has asked for.
	requested  chan []Request
	errandOver chan errandResult
	names      atomic.Pointer[[]string]            // of the jobs
	recovers   atomic.Pointer[map[string]recovery] // of the jobs that have it
	mourned    mourned

	// What follows belongs to the loop.
	tasks     map[string]*task
	dismissed map[string]*task // that a reload has removed while they ran
	agenda    agenda
	heirs     heirs
	watches   queue[*task] // when to look at jobs that other replicas run
	checks    queue[*task] // when to look at jobs that run after others
	running   int          // runs, and claims that may become one
	claiming  bool         // a batch of claims is under way
	surveying bool         // and one of surveys
	checking  bool         // and one of checks
	away      bool         // the server does not answer
	leaving   bool         // the drain has begun
	unready   bool         // no run may be started
	retry     backoff
	askAgain  time.Time        // while it is away
	latest    time.Time        // the newest instant that the loop has seen
	wanted    time.Time        // when the loop is to come round again, by this machine's clock
	begun     []*election.Term // of which the others are to be told
	ended     []*election.Term // and these
	telling   chan struct{}    // closed when they were told of the last ones; nil while nothing is told

	errands        map[string]*errand // what was asked for, by its id, until it has expired
	waitingErrands queue[*errand]     // those that are to be looked at
}

// New validates the configuration. Every fault is in the error.
func New(cfg Config) (*Scheduler, error) {
	var faults []error
	if cfg.MaxRunning < 0 || cfg.DrainTimeout < 0 {
		faults = append(faults, errors.New("Config.MaxRunning and Config.DrainTimeout must not be negative"))
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	cfg.Replica = orDefault(cfg.Replica, "replica")
	cfg.MaxRunning = orDefault(cfg.MaxRunning, 100)
	cfg.DrainTimeout = orDefault(cfg.DrainTimeout, 25*time.Second)
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Notices != nil {
		cfg.Notices = &orderedNotices{Notices: cfg.Notices}
	}
	s := &Scheduler{
		cfg: cfg, log: cfg.Logger, reloads: make(chan reload),
		claimed: make(chan claimedBatch, 1), surveyed: make(chan surveyedBatch, 1), checked: make(chan checkedBatch, 1), finished: make(chan *tick),
		heard:     make(chan []election.Notice, 100), // so that much can be heard before the next batch of claims
		requested: make(chan []Request), errandOver: make(chan errandResult), errands: map[string]*errand{}, dismissed: map[string]*task{},
		mourned: mourned{byJob: map[string]map[string]*receipt{}},
	}
	s.agenda.turn, s.heirs = s.turn, newHeirs()
	s.abort, s.abortNow = context.WithCancel(context.Background())
	s.exec = newExecutor(cfg, s.now, s.abort)
	var err error
	s.tasks, err = newTasks(cfg.Jobs, cfg.Labels)
	faults = append(faults, err, cfg.poolFault(cfg.Jobs))
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("scheduler: %w", err)
	}
	s.nameTasks()
	return s, nil
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// now is the server's clock as far as it is known, else the replica's own.
func (s *Scheduler) now() time.Time {
	if s.cfg.Claimer != nil {
		if t, ok := s.cfg.Claimer.Now(); ok {
			return t
		}
	}
	return s.cfg.Clock()
}

// Abort makes a [Scheduler.Run] that drains kill its jobs at once. It may be called at any time, more than once.
func (s *Scheduler) Abort() { s.abortNow() }

// Run schedules until ctx ends, and then drains: it claims nothing more, waits for running jobs, stops those that are left
// near the end of DrainTimeout, and returns when all of them are dead and released. The server may be away when it starts.
func (s *Scheduler) Run(ctx context.Context) error {
	if s.cfg.Claimer == nil {
		return errNoClaimer
	}
	defer s.abortNow()
	defer s.record()()
	defer s.hear(ctx)()
	defer s.hearRequests(ctx)()
	if err := s.loop(ctx); err != nil {
		return err
	}
	s.drain()
	return nil
}
