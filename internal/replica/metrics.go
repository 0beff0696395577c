package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/events"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/web"
	"github.com/cronclave/cronclave/internal/web/dashboard"
	"github.com/cronclave/cronclave/internal/web/metrics"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

// A monitor serves HTTP requests, and counts events for its metrics. Without [server] in the configuration it does nothing.
type monitor struct {
	metrics  *metrics.Metrics // nil without [server]
	web      *web.Server      // nil without [server]
	view     *clusterView     // nil without [server]
	log      hclog.Logger
	recalled atomic.Bool // the metrics contain the earlier outcomes of all jobs: see recallPast
	cluster  atomic.Pointer[metrics.Cluster]
}

// openServer listens on the address of [server], if there is one. New calls it, so an address that is already in use prevents the start of the replica.
func (m *monitor) openServer(cfg *config.Config, redis *redisconn.Conn, version string, gauges metrics.Gauges, unready func() string, starting func() bool, local func() dashboard.Local) error {
	if cfg.Server.Listen == "" {
		return nil
	}
	c, err := serverConfig(cfg.Server, cfg.Namespace, m.log)
	if err != nil {
		return err
	}
	if m.view, err = openClusterView(redis, cfg, m.log); err != nil {
		return err
	}
	m.metrics = metrics.New(version, gauges)
	m.setConfigured(cfg)
	c.Metrics, c.Unready = m.metrics.Handler(), unready
	c.SessionSecret = func(ctx context.Context, known string) (string, error) {
		if starting() { // nothing is written to a Redis before it is examined
			return "", nil
		}
		return m.view.journal.SessionSecret(ctx, known) //nolint:wrapcheck // the error names the operation
	}
	c.Ended = m.view.journal
	if c.API, err = m.view.newAPI(version, m.log); err != nil {
		return err
	}
	if c.Pages, err = m.view.newPages(c.BasePath, local); err != nil {
		return err
	}
	if m.web, err = web.New(c); err != nil {
		return UsageError{fmt.Errorf("[server]: %w", err)}
	}
	return nil
}

func (m *monitor) runServer(ctx context.Context) {
	if m.web == nil {
		return
	}
	m.log.Info("answering HTTP requests", "address", m.web.Addr(), "url", m.web.URL())
	if err := m.web.Run(ctx); err != nil {
		m.log.Error("HTTP server failed", "error", err)
	}
}

func (m *monitor) close() {
	if m.web != nil {
		_ = m.web.Close() // fails after the server has run, because the server has closed the listener already
	}
	if m.view != nil {
		m.view.close()
	}
}

func (m *monitor) leaseHooks(noted *margins) locking.Hooks {
	if m.metrics == nil {
		return locking.Hooks{Renewed: noted.noteRenewed, Lost: noted.noteLost}
	}
	return locking.Hooks{
		Renewed: func(lock string, left, length time.Duration) {
			noted.noteRenewed(lock, left, length)
			m.metrics.Renewed(left)
		},
		Lost: func(lock string, length time.Duration, cause error) {
			noted.noteLost(lock, length, cause)
			m.metrics.Lost()
		},
		Waited: func(lock string, wait time.Duration) {
			if pool, ok := election.PoolOf(lock); ok { // waiting for other locks is not counted
				m.metrics.Waited(pool, wait)
			}
		},
	}
}

// An observedRunner publishes the output of a run for followers, and measures its start delay.
type observedRunner struct {
	scheduler.Runner
	live    *liveOutput
	monitor *monitor
	now     func() time.Time // the clock of Redis
}

// Run runs the job. It measures only the first attempt of a scheduled tick, because other runs are late on purpose, or have no tick.
func (o observedRunner) Run(ctx context.Context, run *scheduler.Run) scheduler.Result {
	if o.monitor.metrics != nil && run.Trigger == "schedule" && run.Attempt == 1 {
		o.monitor.metrics.Started(o.now().Sub(run.Due))
	}
	defer o.live.endRun(o.live.addRun(run))
	return o.Runner.Run(ctx, run)
}

// logAbandoned logs an abandoned run. All other replicas write records of a dead replica's runs, but for each run only the record that Redis stored first
// becomes an event. A replica that drains records its own runs before other replicas can, so these runs are not logged.
func logAbandoned(log hclog.Logger, e events.Event) {
	rec, isOutcome := e.(events.Outcome)
	if !isOutcome {
		return
	}
	level, what := hclog.Error, "run abandoned: its holder is gone"
	switch {
	case rec.Outcome == journal.OutcomeOK && rec.Token != 0 && rec.Started.IsZero(): // the record is not from the holder, which would have recorded the start
		level, what = hclog.Warn, "run ended well: its holder was gone before it could release it"
	case rec.Outcome != journal.OutcomeAbandoned:
		return
	case rec.Recovers || rec.Reason != "": // the tick runs again, or the run was to stop anyway
		level = hclog.Warn
	}
	log.Log(level, what, "job", rec.Job, "run_id", rec.RunID, "replica_lost", rec.Replica, "token", rec.Token)
}

// enabledNames returns the names of the enabled jobs of a configuration. Disabled jobs have no metrics. Otherwise, an alert on a failed job would last as long
// as the job is disabled.
func enabledNames(cfg *config.Config) (all []string) {
	for _, job := range cfg.EnabledJobs() {
		all = append(all, job.Name)
	}
	return all
}

// setConfigured sets the configuration in use. It starts the series of its jobs and pools, and ends all other series, including the series of jobs that an earlier
// reload removed during a run.
func (m *monitor) setConfigured(cfg *config.Config) {
	if m.metrics == nil {
		return
	}
	var jobs []metrics.Job
	for _, j := range cfg.EnabledJobs() {
		jobs = append(jobs, metrics.Job{Name: j.Name, Retries: j.Retry.Max > 0, Recovers: j.Recover > 0})
	}
	now := time.Now()
	m.metrics.SetJobs(jobs, slices.Collect(maps.Keys(cfg.Pools)), now)
	m.metrics.Configured(now, cfg.Zones.Version())
	m.view.zones.Store(cfg.Zones)
}

func (m *monitor) setRefused() {
	if m.metrics != nil {
		m.metrics.Refused()
	}
}

// countRecoveries counts the recoveries in records. A run has a record for each start of its command, and only the record of the first start counts.
func (m *monitor) countRecoveries(records []journal.Record) {
	if m == nil || m.metrics == nil {
		return
	}
	for _, rec := range records {
		if rec.Outcome == journal.OutcomeRunning && rec.Trigger == "recovery" && rec.FailedTries == 0 {
			m.metrics.Recovering(rec.Job)
		}
	}
}

type waitingPools struct {
	run.Pools
	metrics *metrics.Metrics
}

func (m *monitor) countedPools(of run.Pools) run.Pools {
	if m.metrics == nil {
		return of
	}
	return waitingPools{of, m.metrics}
}

// AcquirePool acquires a slot. Until it returns, the run counts as waiting in the metrics.
func (p waitingPools) AcquirePool(ctx context.Context, entry election.Entry) (*election.Term, error) {
	defer p.metrics.Waiting(entry.Pool)()
	return p.Pools.AcquirePool(ctx, entry)
}

const (
	// recentRecords is the number of records that are read per job. For most jobs they contain a success. For the other jobs all records are read.
	recentRecords = 5
	// refreshEvery is the interval at which the leader reads the records again, because the replica that counted a run in its metrics may be dead.
	refreshEvery = time.Minute
)

// recallPast adds outcomes from the history to the metrics, until ctx ends: at the start, after a reload that adds jobs, and on the leader every refreshEvery.
// Without these outcomes, an alert on jobs without a success would be silent after each restart.
func (m *monitor) recallPast(ctx context.Context, j *journal.Journal, cfg func() *config.Config, leads func() bool) {
	if m.metrics == nil {
		return
	}
	var last time.Time
	for ; ctx.Err() == nil; backoff.Sleep(ctx, cluster.RegisterEvery) {
		all := !m.recalled.Swap(true)
		if !all && (!leads() || time.Since(last) < refreshEvery) {
			continue
		}
		if err := m.recallAll(ctx, j, enabledNames(cfg()), all); err != nil {
			if all {
				m.recalled.Store(false)
			}
			m.log.Debug("the past of jobs not read yet", "error", err)
			continue
		}
		last = time.Now()
	}
}

// recallAll reads the newest records of all jobs. If all is set, and these records of a job contain no success, it reads all records of the job.
func (m *monitor) recallAll(ctx context.Context, j *journal.Journal, jobs []string, all bool) error {
	unclear, err := m.recallFrom(ctx, j, jobs, 250, recentRecords)
	if err == nil && all {
		_, err = m.recallFrom(ctx, j, unclear, 10, 0)
	}
	return err
}

// recallFrom reads the newest records of each job, for atOnce jobs at a time. It returns the jobs whose records contain no success.
func (m *monitor) recallFrom(ctx context.Context, j *journal.Journal, jobs []string, atOnce, records int) (unclear []string, err error) {
	for some := range slices.Chunk(jobs, atOnce) {
		recent, err := j.Recent(ctx, some, records)
		if err != nil && !errors.Is(err, journal.ErrCorrupt) { // the other records are valid
			return nil, err //nolint:wrapcheck // the error names the operation
		}
		for _, job := range some {
			past := pastOf(recent[job])
			if past.OK.IsZero() {
				unclear = append(unclear, job)
			}
			m.metrics.Recall(job, past)
		}
	}
	return unclear, nil
}

// pastOf returns the times of the newest success, the newest failure and the oldest record. The records must be sorted from new to old.
func pastOf(records []journal.Record) (past metrics.Past) {
	for _, rec := range records {
		switch {
		case rec.Retried:
		case rec.Outcome == journal.OutcomeOK && past.OK.IsZero():
			past.OK = rec.Finished
		case rec.Failed() && past.Failure.IsZero():
			past.Failure = rec.Finished
		}
		if at := rec.When(); !at.IsZero() && (past.Oldest.IsZero() || at.Before(past.Oldest)) {
			past.Oldest = at
		}
	}
	return past
}
