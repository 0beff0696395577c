// Package scheduler runs jobs on a cluster of replicas by cron schedules. Each tick of a job runs on the one replica that wins it, or on as many
// replicas as [Job.PerTick] demands.
//
// A [Scheduler] is one replica. Its loop claims due ticks in batches through a [Claimer], and calls the job's [Runner] for each granted tick in a new
// goroutine. The outcome of every tick goes to a [Journal]. All replicas with the same jobs and the same Redis form one cluster:
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
// Ticks are due by the clock of Redis. The clock of a replica has no influence on which ticks run, only on the time at which the replica sends its
// claims.
package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/multierr"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
	"github.com/cronclave/cronclave/scheduler/run"
)

// A Scheduler is one replica. Its method Run must be called only once.
type Scheduler struct {
	*core // core and the fields down to wanted belong to the loop

	claims      *claims
	recoveries  *recoveries
	checks      *checks
	inspections *inspections
	inspector   *inspector
	requests    *requests
	starts      *starts
	dismissed   map[string]*task // jobs that a reload removed while they were running
	latest      time.Time        // the newest instant that the loop has seen
	wanted      time.Time        // the planned time of the next iteration of the loop, by this machine's clock

	// The following fields are also used by other goroutines.
	grants   chan []election.GrantEvent
	reloads  chan reload
	late     lateness
	names    atomic.Pointer[[]string] // the names of the jobs
	abort    context.Context          // ends when running jobs must be killed at once
	abortNow context.CancelFunc
}

// New returns a scheduler. If the configuration is invalid, the error has every fault.
func New(cfg Config) (*Scheduler, error) {
	var faults []error
	if cfg.MaxRunning < 0 || cfg.DrainTimeout < 0 {
		faults = append(faults, errors.New("Config.MaxRunning and Config.DrainTimeout must not be negative"))
	}
	cfg.Logger = cmp.Or[hclog.Logger](cfg.Logger, hclog.NewNullLogger())
	cfg.Replica = cmp.Or(cfg.Replica, "replica")
	cfg.MaxRunning = cmp.Or(cfg.MaxRunning, 100)
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, 25*time.Second)
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.GrantEvents != nil {
		cfg.GrantEvents = &orderedGrantEvents{GrantEvents: cfg.GrantEvents}
	}
	s := &Scheduler{core: &core{cfg: cfg, log: cfg.Logger}, reloads: make(chan reload), dismissed: map[string]*task{},
		late:   lateness{asks: make(chan chan<- time.Duration)},
		grants: make(chan []election.GrantEvent, 100)} // the capacity for events that arrive between two iterations of the loop
	s.agenda.Turn = func(j *line, tick time.Time) time.Duration { return s.cfg.turnDelay(j.Of, tick) }
	s.agenda.Refused = func(err error) { s.log.Error("tick left in its state", "error", err) }
	s.places.most = cfg.MaxRunning
	s.published = publisher{events: cfg.GrantEvents, log: cfg.Logger}
	s.abort, s.abortNow = context.WithCancel(context.Background())
	s.exec = run.NewExecutor(cfg.forRuns(s.now, s.abort))
	s.inspector = &inspector{claimer: cfg.Claimer, recorder: s.exec.Recorder(), log: cfg.Logger, replica: cfg.Replica, gone: cfg.Gone}
	s.starts = &starts{cfg: &s.cfg, exec: s.exec, finished: make(chan *grant)}
	s.recoveries = &recoveries{core: s.core, lane: newLane[*recovery, recoveryBatch](&agenda.Queue[*recovery]{}), starts: s.starts, inspector: s.inspector,
		known: map[string]map[string]*recovery{}, swept: make(chan []string, 1)}
	s.claims = &claims{core: s.core, lane: newLane[*tick, claimBatch](s.agenda.Asks()), starts: s.starts, recoveries: s.recoveries, retry: newBackoff()}
	s.checks = &checks{core: s.core, lane: newLane[*task, checkBatch](&s.toCheck), recoveries: s.recoveries, inspector: s.inspector}
	s.requests = &requests{core: s.core, starts: s.starts, recoveries: s.recoveries, requested: make(chan []Request), over: make(chan handledRequest),
		known: map[string]*pendingRequest{}}
	s.inspections = &inspections{core: s.core, lane: newLane[*task, inspectionBatch](&s.toInspect), recoveries: s.recoveries, inspector: s.inspector}
	var err error
	s.tasks, err = cfg.newTasks(cfg.Jobs)
	faults = append(faults, err, cfg.poolFault(cfg.Jobs))
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("scheduler: %w", err)
	}
	s.nameTasks()
	return s, nil
}

// Unable returns the reason if this replica claims nothing because its machine cannot start programs. Otherwise it returns "". It may be called at
// any time.
func (s *Scheduler) Unable() string { return s.exec.Unable() }

// Unstartable returns the jobs whose last start on this replica failed, with the reason for each. It may be called at any time.
func (s *Scheduler) Unstartable() map[string]string { return s.exec.StartFailures() }

// Running returns the number of runs on this replica. It may be called at any time.
func (s *Scheduler) Running() int {
	s.starts.active.mu.Lock()
	defer s.starts.active.mu.Unlock()
	return s.starts.active.all
}

// RunningByJob returns the number of runs on this replica per job. Jobs without runs are absent. It may be called at any time.
func (s *Scheduler) RunningByJob() map[string]int {
	s.starts.active.mu.Lock()
	defer s.starts.active.mu.Unlock()
	return maps.Clone(s.starts.active.jobs)
}

// Sweep inspects all jobs and records the outcomes of runs whose holder died unnoticed. It also inspects the jobs in idle, which are no longer
// configured. One replica of a cluster should call Sweep from time to time, because all replicas that would notice a dead holder may have been
// restarted. Sweep may be called during [Scheduler.Run].
func (s *Scheduler) Sweep(ctx context.Context, idle ...string) error {
	names := slices.Sorted(slices.Values(slices.Concat(*s.names.Load(), idle)))
	var requests []election.InspectRequest
	for _, name := range slices.Compact(names) {
		requests = append(requests, election.InspectRequest{Lock: election.JobLock(name)})
	}
	states, faults := s.inspector.inspectJobs(ctx, requests)
	s.recoveries.reportSwept(requests, states)
	for _, st := range states {
		faults = append(faults, st.Err)
	}
	return multierr.Join(faults...)
}

// A lateness lets other goroutines ask the loop for the lateness of the oldest undecided tick.
type lateness struct {
	asks  chan chan<- time.Duration
	round atomic.Pointer[time.Time] // the time of the last iteration of the loop; nil before the first, and in a drain
}

// longestAnswer is the maximum time for which [Scheduler.Lateness] waits for the loop.
const longestAnswer = 500 * time.Millisecond

// Lateness returns the time for which the oldest undecided tick has been due, as far as this replica knows. Ticks that only wait for a slot of their
// own job do not count. If the scheduler's loop does not answer, Lateness returns the time since the loop's last iteration. ok is false while no loop
// runs: before Redis has answered for the first time, and in a drain. Lateness may be called at any time, and returns within half a second.
func (s *Scheduler) Lateness() (late time.Duration, ok bool) {
	round := s.late.round.Load()
	if round == nil {
		return 0, false
	}
	answer := make(chan time.Duration, 1) // capacity 1, so that the loop does not wait for the caller
	limit := time.NewTimer(longestAnswer)
	defer limit.Stop()
	select {
	case s.late.asks <- answer:
		return <-answer, true
	case <-limit.C:
		return time.Since(*round), true
	}
}

// SinceIteration returns the time since the last iteration of the scheduler's loop, which sleeps for two seconds at most. ok is false while no loop
// runs, as with [Scheduler.Lateness]. SinceIteration may be called at any time, and does not wait for the loop.
func (s *Scheduler) SinceIteration() (since time.Duration, ok bool) {
	round := s.late.round.Load()
	if round == nil {
		return 0, false
	}
	return time.Since(*round), true
}

func latestOverdue(tasks map[string]*task, now time.Time) (late time.Duration) {
	for _, t := range tasks {
		if due, ok := t.Overdue(); ok {
			late = max(late, now.Sub(due))
		}
	}
	return late
}
