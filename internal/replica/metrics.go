package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/httpapi"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
)

// listen opens the address of [server], if it has one: a port that is taken is a fault at the start.
func (r *Replica) listen(cfg config.Server) (err error) {
	if cfg.Listen == "" {
		return nil
	}
	c, err := serverConfig(cfg, r.log)
	if err != nil {
		return err
	}
	r.metrics = httpapi.NewMetrics(r.version, httpapi.Gauges{
		Leader: r.leads.Load, RedisUp: r.redisUp, ClockOffset: r.clockOffset,
		LogDropped: r.logDropped, Running: func() int { return r.scheduler.Running() }, ByJob: func() map[string]int { return r.scheduler.RunningByJob() },
	})
	c.Metrics = r.metrics.Handler()
	if r.web, err = httpapi.New(c); err != nil {
		return UsageError{fmt.Errorf("[server]: %w", err)}
	}
	return nil
}

// serve answers HTTP requests until ctx ends.
func (r *Replica) serve(ctx context.Context) {
	if r.web == nil {
		return
	}
	r.log.Info("answering HTTP requests", "address", r.web.Addr(), "url", r.web.URL())
	if err := r.web.Run(ctx); err != nil {
		r.log.Error("HTTP server failed", "error", err)
	}
}

// clockOffset is how far this machine's clock is from that of Redis, if it has answered yet.
func (r *Replica) clockOffset() (offset time.Duration, known bool) {
	now, known := r.locks.Engine().EstimatedTime()
	return r.clock().Sub(now), known
}

// redisUp pings Redis on the replica's own connections, as the replica did when it started: a result of some seconds ago would be out of date.
func (r *Replica) redisUp() bool {
	_, err := r.redis.Examine(context.Background())
	return err == nil
}

// hooks count the events of leases.
func (r *Replica) hooks() locking.Hooks {
	if r.metrics == nil {
		return locking.Hooks{}
	}
	return locking.Hooks{
		Renewed: func(_ string, left time.Duration) { r.metrics.Renewed(left) },
		Lost:    func(string, error) { r.metrics.Lost() },
		Waited: func(lock string, wait time.Duration) {
			if pool, ok := election.PoolOf(lock); ok { // waiting for other locks is not counted
				r.metrics.Waited(pool, wait)
			}
		},
	}
}

// delayRunner notes how late a run is started.
type delayRunner struct {
	scheduler.Runner
	*Replica
}

// Run runs the job. Only the first try of a tick as it comes due says how punctual a replica is: all else is late on purpose, or has no tick.
func (p delayRunner) Run(ctx context.Context, run *scheduler.Run) scheduler.Result {
	if p.metrics != nil && run.Trigger == "schedule" && run.Attempt == 1 {
		p.metrics.Started(p.now().Sub(run.Due))
	}
	return p.Runner.Run(ctx, run)
}

// withReason are the outcomes whose reasons are a few words; those of others are texts.
var withReason = []scheduler.Outcome{scheduler.Canceled, scheduler.Skipped, scheduler.Missed}

// count gets each record that is the first to end a run or a tick; nil without metrics.
func (r *Replica) count() func(journal.Record) {
	if r.metrics == nil {
		return nil
	}
	return func(rec journal.Record) {
		if rec.Retried {
			r.metrics.TryFailed(rec.Job)
			return
		}
		o := httpapi.Outcome{Job: rec.Job, Outcome: rec.Outcome, Ticks: rec.Ticks, Finished: rec.Finished}
		if slices.Contains(withReason, scheduler.Outcome(rec.Outcome)) {
			o.Reason = rec.Reason
		}
		if rec.DurationMS != nil {
			o.Ran, o.Took = true, time.Duration(*rec.DurationMS)*time.Millisecond
		}
		r.metrics.Ended(o)
	}
}

// recall fills the metrics, until ctx ends, with the last success of each job from before this replica started, or had the job. Without it an alert
// on jobs without a success would be silent after each restart.
func (r *Replica) recall(ctx context.Context) {
	if r.metrics == nil {
		return
	}
	every(ctx, operator.RegisterEvery, func() {
		if r.recalled.Swap(true) {
			return
		}
		if err := r.recallAll(ctx); err != nil {
			r.recalled.Store(false)
			r.log.Debug("last successes of jobs not read yet", "error", err)
		}
	})
}

// recallAll looks at the newest records of all jobs, and at all of those that did not do well lately.
func (r *Replica) recallAll(ctx context.Context) error {
	jobs := names(r.cfg.Load())
	for _, look := range []struct{ jobs, records int }{{250, 2}, {10, 0}} {
		var ill []string
		for some := range slices.Chunk(jobs, look.jobs) {
			recent, err := r.journal.Recent(ctx, some, look.records)
			if err != nil && !errors.Is(err, journal.ErrCorrupt) { // of which the rest is good
				return err //nolint:wrapcheck // the error names the operation
			}
			for _, job := range some {
				i := slices.IndexFunc(recent[job], func(rec journal.Record) bool { return rec.Outcome == journal.OutcomeOK })
				if i < 0 {
					ill = append(ill, job)
					continue
				}
				r.metrics.Succeeded(job, recent[job][i].Finished)
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
func (r *Replica) forget(cfg *config.Config) {
	if r.metrics == nil {
		return
	}
	known := make(map[string]bool, len(cfg.Jobs))
	for _, job := range names(cfg) {
		known[job] = true
	}
	r.metrics.Keep(func(job string) bool { return known[job] })
}
