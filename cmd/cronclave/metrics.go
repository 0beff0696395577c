package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/httpapi"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
)

// listen opens the address of [server], if it has one: a port that is taken is a fault at the start.
func (r *replica) listen(cfg config.Server) (err error) {
	if cfg.Listen == "" {
		return nil
	}
	token, err := readToken(cfg.TokenFile)
	if err != nil {
		return err
	}
	r.metrics = httpapi.NewMetrics(version, httpapi.Gauges{
		Leader: r.leads.Load, ClockOffset: r.clockOffset, Running: func() int { return r.scheduler.Running() },
	})
	r.web, err = httpapi.New(httpapi.Config{Listen: cfg.Listen, Token: token, Metrics: r.metrics.Handler(), Log: r.log})
	if err != nil {
		return usageError("[server]: %w", err)
	}
	return nil
}

// readToken reads the token that requests must bear.
func readToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", usageError("read [server].token_file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", usageError("[server].token_file %s is empty: write a token into it", file)
	}
	if strings.ContainsAny(token, " \t\r\n") {
		return "", usageError("[server].token_file %s has more than one word: write only the token into it", file)
	}
	return token, nil
}

// serve answers HTTP requests until ctx ends.
func (r *replica) serve(ctx context.Context) {
	if r.web == nil {
		return
	}
	r.log.Info("answering HTTP requests", "address", r.web.Addr())
	if err := r.web.Run(ctx); err != nil {
		r.log.Error("no HTTP requests are answered any more", "error", err)
	}
}

// clockOffset is how far this machine's clock is from that of Redis.
func (r *replica) clockOffset() time.Duration {
	if now, known := r.locks.EstimatedTime(); known {
		return r.clock().Sub(now)
	}
	return 0
}

// hooks are what the metrics are told of leases.
func (r *replica) hooks() locking.Hooks {
	if r.metrics == nil {
		return locking.Hooks{}
	}
	return locking.Hooks{Renewed: func(_ string, left time.Duration) { r.metrics.Renewed(left) }, Lost: func(string, error) { r.metrics.Lost() }}
}

// withReason are the outcomes whose reasons are a few words; those of others are texts.
var withReason = []scheduler.Outcome{scheduler.Canceled, scheduler.Skipped, scheduler.Missed}

// count is told of each record that is the first to end a run or a tick; nil without metrics.
func (r *replica) count() func(journal.Record) {
	if r.metrics == nil {
		return nil
	}
	return func(rec journal.Record) {
		o := httpapi.Outcome{Job: rec.Job, Outcome: rec.Outcome, Ticks: rec.Ticks, Finished: rec.Finished}
		if slices.Contains(withReason, scheduler.Outcome(rec.Outcome)) {
			o.Reason = rec.Reason
		}
		if rec.DurationMS != nil {
			o.Took = time.Duration(*rec.DurationMS) * time.Millisecond
		}
		r.metrics.Ended(o)
	}
}

// forget drops what was counted of jobs that a configuration does not have, also of those that went with one before and whose last run ended after that.
func (r *replica) forget(cfg *config.Config) {
	if r.metrics == nil {
		return
	}
	known := make(map[string]bool, len(cfg.Jobs))
	for i := range cfg.Jobs {
		known[cfg.Jobs[i].Name] = true
	}
	r.metrics.Keep(func(job string) bool { return known[job] })
}
