package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/command"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
)

// identity is a replica's name, for people, and what tells it from another of the same name.
type identity struct{ name, id string }

// replica is all that one `cronclave run` is made of. This file is the only place that knows every package.
type replica struct {
	identity
	cfg       *config.Config
	log       hclog.Logger
	redis     *redis.Client
	locks     *locking.Client
	host      *command.Host
	scheduler *scheduler.Scheduler
	journal   *journal.Journal
	office    *election.Office
	clock     func() time.Time // this machine's wall clock
	started   time.Time
}

// leaderOffice is the office of the cluster's housekeeping.
const leaderOffice = "leader"

func (a *app) newReplica(cfg *config.Config, who identity, log hclog.Logger, offset time.Duration) (r *replica, err error) {
	r = &replica{identity: who, cfg: cfg, log: log.With("replica", who.name), started: time.Now(),
		clock: func() time.Time { return time.Now().Add(offset) }}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.redis, err = a.openRedis(cfg.Redis); err != nil {
		return r, err
	}
	if r.locks, err = openLocks(r.redis, cfg.Namespace, who.name); err != nil {
		return r, err
	}
	if r.journal, err = openJournal(r.redis, cfg); err != nil {
		return r, err
	}
	if r.host, err = command.NewHost(command.HostConfig{Logger: r.log}); err != nil {
		return r, fmt.Errorf("prepare to run commands: %w", err)
	}
	if r.office, err = election.NewOffice(election.OfficeConfig{Locks: r.locks, Name: leaderOffice}); err != nil {
		return r, err
	}
	r.scheduler, err = r.newScheduler(jobsOf(cfg, r.host, toLog))
	return r, err
}

func (r *replica) newScheduler(jobs []scheduler.Job) (*scheduler.Scheduler, error) {
	elector, err := election.New(election.Config{Locks: r.locks})
	if err != nil {
		return nil, err
	}
	return scheduler.New(scheduler.Config{
		Jobs: jobs, Claimer: elector, Journal: recorder{r.journal}, Logger: r.log, Replica: r.name,
		MaxRunning: r.cfg.Replica.MaxRunning, DrainTimeout: r.cfg.Replica.DrainTimeout, Clock: r.clock,
	})
}

func openLocks(rdb *redis.Client, namespace, owner string) (*locking.Client, error) {
	return locking.New(locking.Config{Redis: rdb, Prefix: "cronclave:" + namespace + ":", Owner: owner, Timeout: redisTimeout})
}

func openJournal(rdb *redis.Client, cfg *config.Config) (*journal.Journal, error) {
	return journal.New(journal.Config{Redis: rdb, Namespace: cfg.Namespace, Runs: cfg.History.Runs, MaxAge: cfg.History.MaxAge,
		MaxBytes: cfg.History.MaxBytes, Timeout: 2 * redisTimeout})
}

// jobsOf turns the enabled jobs of a configuration into the scheduler's.
func jobsOf(cfg *config.Config, host *command.Host, line outputLine) []scheduler.Job {
	var jobs []scheduler.Job
	for i := range cfg.Jobs {
		j := &cfg.Jobs[i]
		if !j.Enabled {
			continue
		}
		jobs = append(jobs, scheduler.Job{
			Name: j.Name, Schedule: j.Schedule, Location: j.Location, Jitter: j.Jitter,
			Parallel: j.Parallel, PerTick: j.PerTick, PerReplica: j.PerReplica, StartDeadline: j.StartDeadline,
			Timeout: noneIfZero(j.Timeout), KillGrace: noneIfZero(j.KillGrace), Lease: j.Lease,
			Runner: &commandRunner{host: host, job: j, namespace: cfg.Namespace, withheld: cfg.Withheld(j), line: line},
		})
	}
	return jobs
}

// noneIfZero turns the configuration's 0 into the scheduler's none; its own 0 is the default.
func noneIfZero(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// close ends what newReplica has opened, in the reverse order.
func (r *replica) close() {
	if r.host != nil {
		if err := r.host.Close(); err != nil {
			r.log.Warn("clean up after commands", "error", err)
		}
	}
	if r.locks != nil {
		_ = r.locks.Close() // it only waits
	}
	if r.redis != nil {
		_ = r.redis.Close() // nothing is under way
	}
}

// run waits for Redis, and then schedules until ctx ends and the drain is over.
func (r *replica) run(ctx context.Context, embedded bool) error {
	r.announce(embedded)
	h, err := r.awaitRedis(ctx, embedded)
	if err != nil || ctx.Err() != nil {
		return err
	}
	for _, w := range h.Warnings {
		r.log.Warn(w.Message, "code", w.Code)
	}
	campaign, resign := context.WithCancel(ctx)
	registered, leave := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	beside.Go(func() { r.office.Campaign(campaign, r.lead) })
	beside.Go(func() { r.register(registered) })
	err = r.scheduler.Run(ctx)
	resign()
	leave()
	beside.Wait()
	if ctx.Err() != nil { // drained; a server that was never there is no failure then
		r.log.Info("drained")
		return nil
	}
	return err
}

// awaitRedis tries until Redis answers and is fit to coordinate.
func (r *replica) awaitRedis(ctx context.Context, embedded bool) (health, error) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		h, err := r.lookAtRedis(ctx, embedded)
		if err == nil || refused(err) {
			return h, err
		}
		r.log.Warn("Redis does not answer; trying again", "redis", where(r.redis.Options()), "error", err, "in", pause.String())
		select {
		case <-ctx.Done():
			return h, nil
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

func (r *replica) lookAtRedis(ctx context.Context, embedded bool) (h health, err error) {
	if !embedded { // which has no settings to look at
		h, err = examine(ctx, r.redis)
	}
	if err == nil {
		err = r.journal.ClaimFormat(ctx)
	}
	switch {
	case errors.Is(err, errUnfit):
		return h, exitError{exitFailed, err}
	case errors.Is(err, journal.ErrNewerFormat):
		return h, exitError{exitUsage, err}
	}
	return h, err
}

// announce is the first word of a replica: with whom it coordinates, and how it isolates processes.
func (r *replica) announce(embedded bool) {
	args := []any{"redis", where(r.redis.Options()), "namespace", r.cfg.Namespace, "isolation", r.host.Isolation(),
		"jobs", len(r.cfg.Jobs), "config", r.cfg.Digest()[:12], "version", version}
	if embedded {
		r.log.Warn("starting with an embedded Redis: a trial, coordinates with nobody else", args...)
		return
	}
	r.log.Info("starting", args...)
}
