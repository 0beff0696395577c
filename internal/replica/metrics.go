package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/httpapi"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
)

// monitor answers the requests of [server], and counts what happens for them. Without [server] it does nothing.
type monitor struct {
	metrics  *httpapi.Metrics // nil without [server]
	web      *httpapi.Server  // the same
	view     *clusterView     // the same
	log      hclog.Logger
	recalled atomic.Bool // the metrics know when jobs last ended ok
}

// open opens the address of [server], if it has one: a port that is taken is a fault at the start.
func (m *monitor) open(cfg *config.Config, redis *redisconn.Conn, version string, gauges httpapi.Gauges, unready func() string) error {
	if cfg.Server.Listen == "" {
		return nil
	}
	c, err := serverConfig(cfg.Server, m.log)
	if err != nil {
		return err
	}
	if m.view, err = openClusterView(redis, cfg); err != nil {
		return err
	}
	m.metrics = httpapi.NewMetrics(version, gauges)
	c.Metrics, c.API, c.Unready = m.metrics.Handler(), m.view.api(version, m.log), unready
	if m.web, err = httpapi.New(c); err != nil {
		return UsageError{fmt.Errorf("[server]: %w", err)}
	}
	return nil
}

// serve answers HTTP requests until ctx ends.
func (m *monitor) serve(ctx context.Context) {
	if m.web == nil {
		return
	}
	m.log.Info("answering HTTP requests", "address", m.web.Addr(), "url", m.web.URL())
	if err := m.web.Run(ctx); err != nil {
		m.log.Error("HTTP server failed", "error", err)
	}
}

// close closes a server that was not run.
func (m *monitor) close() {
	if m.web != nil {
		_ = m.web.Close()
	}
	if m.view != nil {
		m.view.close()
	}
}

// hooks count the events of leases.
func (m *monitor) hooks() locking.Hooks {
	if m.metrics == nil {
		return locking.Hooks{}
	}
	return locking.Hooks{
		Renewed: func(_ string, left time.Duration) { m.metrics.Renewed(left) },
		Lost:    func(string, error) { m.metrics.Lost() },
		Waited: func(lock string, wait time.Duration) {
			if pool, ok := election.PoolOf(lock); ok { // waiting for other locks is not counted
				m.metrics.Waited(pool, wait)
			}
		},
	}
}

// delayRunner notes how late a run is started.
type delayRunner struct {
	scheduler.Runner
	monitor *monitor
	now     func() time.Time // the server's clock
}

// Run runs the job. Only the first try of a tick as it comes due says how punctual a replica is: all else is late on purpose, or has no tick.
func (p delayRunner) Run(ctx context.Context, run *scheduler.Run) scheduler.Result {
	if p.monitor.metrics != nil && run.Trigger == "schedule" && run.Attempt == 1 {
		p.monitor.metrics.Started(p.now().Sub(run.Due))
	}
	return p.Runner.Run(ctx, run)
}

// withReason are the outcomes whose reasons are a few words; those of others are texts.
var withReason = []scheduler.Outcome{scheduler.Canceled, scheduler.Skipped, scheduler.Missed}

// count gets each record that is the first to end a run or a tick; nil without metrics.
func (m *monitor) count() func(journal.Record) {
	if m.metrics == nil {
		return nil
	}
	return func(rec journal.Record) {
		if rec.Retried {
			m.metrics.TryFailed(rec.Job)
			return
		}
		o := httpapi.Outcome{Job: rec.Job, Outcome: rec.Outcome, Ticks: rec.Ticks, Finished: rec.Finished}
		if slices.Contains(withReason, scheduler.Outcome(rec.Outcome)) {
			o.Reason = rec.Reason
		}
		if rec.DurationMS != nil {
			o.Ran, o.Took = true, time.Duration(*rec.DurationMS)*time.Millisecond
		}
		m.metrics.Ended(o)
	}
}

// recall fills the metrics, until ctx ends, with the last success of each job from before this replica started, or had the job. Without it an alert
// on jobs without a success would be silent after each restart.
func (m *monitor) recall(ctx context.Context, j *journal.Journal, jobs func() []string) {
	if m.metrics == nil {
		return
	}
	every(ctx, operator.RegisterEvery, func() {
		if m.recalled.Swap(true) {
			return
		}
		if err := m.recallAll(ctx, j, jobs()); err != nil {
			m.recalled.Store(false)
			m.log.Debug("last successes of jobs not read yet", "error", err)
		}
	})
}

// recallAll looks at the newest records of all jobs, and at all of those that did not do well lately.
func (m *monitor) recallAll(ctx context.Context, j *journal.Journal, jobs []string) error {
	for _, look := range []struct{ jobs, records int }{{250, 2}, {10, 0}} {
		var ill []string
		for some := range slices.Chunk(jobs, look.jobs) {
			recent, err := j.Recent(ctx, some, look.records)
			if err != nil && !errors.Is(err, journal.ErrCorrupt) { // of which the rest is good
				return err //nolint:wrapcheck // the error names the operation
			}
			for _, job := range some {
				i := slices.IndexFunc(recent[job], func(rec journal.Record) bool { return rec.Outcome == journal.OutcomeOK })
				if i < 0 {
					ill = append(ill, job)
					continue
				}
				m.metrics.Succeeded(job, recent[job][i].Finished)
			}
		}
		jobs = ill
	}
	return nil
}

// names are those of all jobs of a configuration.
func names(cfg *config.Config) []string {
	all := make([]string, len(cfg.Jobs))
	for i := range cfg.Jobs {
		all[i] = cfg.Jobs[i].Name
	}
	return all
}

// forget drops the counts of jobs that a configuration does not have, also of those that went with an earlier one and whose last run ended after
// that.
func (m *monitor) forget(cfg *config.Config) {
	if m.metrics == nil {
		return
	}
	known := make(map[string]bool, len(cfg.Jobs))
	for _, job := range names(cfg) {
		known[job] = true
	}
	m.metrics.Keep(func(job string) bool { return known[job] })
}
