package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/command"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/httpapi"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/warden"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
)

// identity is a replica's name, for people, what tells it from another of the same name, and its process, as processID tells it.
type identity struct{ name, id, process string }

// replica is all that one `cronclave run` is made of. This file is the only place that knows every package.
type replica struct {
	identity
	cfg       atomic.Pointer[config.Config] // what is in force
	refused   atomic.Pointer[string]        // what is wrong with a newer one
	heartless atomic.Pointer[string]        // what is wrong with the heartbeat that it sends
	edited    atomic.Bool                   // the cluster is to be told of other jobs
	recalled  atomic.Bool                   // the metrics know when jobs last ended ok, or are being told
	log       hclog.Logger
	redis     *store
	locks     *locking.Client
	processes *processes
	scheduler *scheduler.Scheduler
	journal   *journal.Journal
	live      *liveOutput
	office    *election.Office
	peers     peers
	leads     atomic.Bool      // the cluster's housekeeping
	metrics   *httpapi.Metrics // nil without [server]
	web       *httpapi.Server  // the same
	clock     func() time.Time // this machine's wall clock
	started   time.Time

	logDropped func() uint64 // lines that were dropped from the log so far
}

// leaderOffice is the office of the cluster's housekeeping.
const leaderOffice = "leader"

func (a *app) newReplica(cfg *config.Config, who identity, log hclog.Logger, offset time.Duration) (r *replica, err error) {
	r = &replica{identity: who, log: log.With("replica", who.name), started: time.Now(), logDropped: a.logDropped,
		peers: peers{self: who.id}, clock: func() time.Time { return time.Now().Add(offset) }}
	r.cfg.Store(cfg)
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if err = r.listen(cfg.Server); err != nil {
		return r, err
	}
	if r.redis, err = a.openRedis(cfg); err != nil {
		return r, err
	}
	locks := locksConfig(r.redis, cfg.Namespace, who.name)
	locks.OnForbidden, locks.Hooks = r.forbidden, r.hooks()
	if r.locks, err = locking.New(locks); err != nil {
		return r, err
	}
	if r.journal, err = openJournal(r.redis, cfg, r.count()); err != nil {
		return r, err
	}
	r.live = newLiveOutput(r.journal, r.log)
	command.KeepInherited()
	if r.processes, err = newProcesses(r.log, a.wardenLog()); err != nil {
		return r, err
	}
	if err = fit(cfg, r.processes.host.Check); err != nil {
		return r, err
	}
	if r.office, err = election.NewOffice(election.OfficeConfig{Locks: r.locks, Name: leaderOffice}); err != nil {
		return r, err
	}
	r.scheduler, err = r.newScheduler(cfg)
	return r, err
}

func (r *replica) newScheduler(cfg *config.Config) (*scheduler.Scheduler, error) {
	elector, err := election.New(election.Config{Locks: r.locks})
	if err != nil {
		return nil, err
	}
	return scheduler.New(scheduler.Config{
		Jobs: r.jobs(cfg), Claimer: elector, Journal: recorder{r.journal}, Logger: r.log, Replica: r.name,
		MaxRunning: maxRunning(cfg.Replica.MaxRunning, limitsOfProcess(), r.log), DrainTimeout: cfg.Replica.DrainTimeout, Clock: r.clock,
		Notices: elector, Requests: requests{r.journal, elector}, Pools: elector, Peers: r.peers.get, Ready: r.processes.warden.Ready,
		Probe:  r.processes.host.Probe,
		Labels: cfg.Replica.Labels,
	})
}

func openLocks(s *store, namespace, owner string) (*locking.Client, error) {
	return locking.New(locksConfig(s, namespace, owner))
}

func locksConfig(s *store, namespace, owner string) locking.Config {
	c := locking.Config{Redis: s.UniversalClient, Prefix: "cronclave:" + namespace + ":", Owner: owner,
		Timeout: redisTimeout, AckedReplicas: s.acked, AckTimeout: s.ackTimeout}
	for _, m := range s.quorum {
		c.Redis, c.Quorum = nil, append(c.Quorum, m.Client)
	}
	return c
}

func openJournal(s *store, cfg *config.Config, first func(journal.Record)) (*journal.Journal, error) {
	return journal.New(journal.Config{Redis: s.UniversalClient, Namespace: cfg.Namespace, Runs: cfg.History.Runs, MaxAge: cfg.History.MaxAge,
		MaxBytes: cfg.History.MaxBytes, Timeout: 2 * redisTimeout, First: first})
}

// jobsOf turns the enabled jobs of a configuration into the scheduler's.
func jobsOf(cfg *config.Config, host *command.Host, open openOutput) []scheduler.Job {
	var jobs []scheduler.Job
	for i := range cfg.Jobs {
		j := &cfg.Jobs[i]
		if !j.Enabled {
			continue
		}
		zone := j.Location
		if len(j.After) > 0 { // its ticks are those of the jobs before it
			zone = nil
		}
		jobs = append(jobs, scheduler.Job{
			Name: j.Name, Schedule: j.Schedule, After: j.After, Location: zone, Jitter: j.Jitter,
			Except: j.Except, ExceptDates: j.ExceptDates, StartsAt: j.StartsAt, ExpiresAt: j.ExpiresAt,
			Parallel: j.Parallel, PerTick: j.PerTick, PerReplica: j.PerReplica, StartDeadline: j.StartDeadline,
			Timeout: noneIfZero(j.Timeout), KillGrace: noneIfZero(j.KillGrace), Lease: j.Lease, StartTimeout: startTimeout(j.Lease), OutlivesLease: j.OutlivesLease, Where: j.Where,
			Overlap: scheduler.Overlap(j.Overlap), CatchUp: scheduler.CatchUp(j.CatchUp), CatchUpWindow: j.CatchUpWindow,
			Retry: scheduler.Retry(j.Retry), Recover: scheduler.Recover{Max: j.Recover}, Pool: scheduler.Pool{Name: j.Pool, Slots: j.PoolSlots},
			Runner: &commandRunner{host: host, job: j, namespace: cfg.Namespace, withheld: cfg.Withheld(j), trust: cfg.Trust, open: open},
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
	if r.web != nil {
		_ = r.web.Close() // for one that was not run
	}
	if r.processes != nil {
		r.processes.close()
	}
	if r.locks != nil {
		_ = r.locks.Close() // it only waits
	}
	if r.redis != nil {
		_ = r.redis.Close() // nothing is under way
	}
}

// run waits for Redis, and then schedules until ctx ends and the drain is over. reload runs beside it until the drain begins.
func (r *replica) run(ctx context.Context, embedded bool, reload func(context.Context)) error {
	served, shut := context.WithCancel(context.WithoutCancel(ctx))
	var web sync.WaitGroup
	web.Go(func() { r.serve(served) })
	defer web.Wait()
	defer shut()
	r.announce(embedded)
	h, err := r.awaitRedis(ctx, embedded)
	if err != nil || ctx.Err() != nil {
		return err
	}
	if err := r.claimName(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	for _, w := range h.Warnings {
		r.log.Warn(w.Message, "code", w.Code)
	}
	work, drain := context.WithCancelCause(ctx)
	campaign, resign := context.WithCancel(work)
	registered, leave := context.WithCancel(context.WithoutCancel(ctx))
	var beside sync.WaitGroup
	beside.Go(func() { r.office.Campaign(campaign, r.lead) })
	beside.Go(func() { r.register(registered) })
	beside.Go(func() { r.live.run(registered) })
	beside.Go(func() { r.recall(work) })
	beside.Go(func() { r.processes.mind(work, drain) })
	beside.Go(func() { reload(work) })
	err = r.scheduler.Run(work)
	drain(nil) // unless it has a cause already
	resign()
	leave()
	beside.Wait()
	if ctx.Err() != nil {
		r.log.Info("drained") // a server that was never there is no failure then
		return nil
	}
	if err == nil && errors.Is(context.Cause(work), warden.ErrGone) {
		r.log.Error("drained, since without a warden nothing may be started")
		return exitError{exitFailed, context.Cause(work)}
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
		r.complain(err, pause)
		select {
		case <-ctx.Done():
			return h, nil
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

// complain tells why the replica does not start yet. It is an error where somebody has to do something; that may be on the server
// (a user, a permission), so the replica tries on.
func (r *replica) complain(err error, pause time.Duration) {
	args := []any{"redis", r.redis.where(), "error", err, "in", pause.String()}
	t := troubleOf(err)
	if t == forbidden {
		t.remedy = r.rights().all()
	}
	switch {
	case t == unreachable:
		r.log.Warn("Redis does not answer; trying again", args...)
	case t.remedy == "":
		r.log.Warn("Redis "+t.what+"; trying again", args...)
	default:
		r.log.Error("Redis "+t.what+"; trying again", append(args, "remedy", t.remedy)...)
	}
}

// forbidden tells of an ACL that keeps the replica from the channel of notices. It works without them.
func (r *replica) forbidden(channel string, err error) {
	r.log.Warn("Redis forbids the channel on which replicas tell each other what they have won; promises hold, but each replica asks for each tick",
		"channel", channel, "error", err, "remedy", "ACL SETUSER "+cmp.Or(r.redis.url.User, "default")+" &"+channel)
}

func (r *replica) rights() rights {
	return rights{r.redis.url.User, r.cfg.Load().Namespace, r.redis.url.Topology}
}

func (r *replica) lookAtRedis(ctx context.Context, embedded bool) (h health, err error) {
	if !embedded { // which was announced
		h, err = examine(ctx, r.redis)
	}
	if err == nil {
		err = r.journal.ClaimFormat(ctx)
	}
	if unfit := unfitData(err); unfit != nil {
		return h, unfit
	}
	if errors.Is(err, errUnfit) {
		return h, exitError{exitFailed, err}
	}
	return h, err
}

// announce is the first word of a replica: with whom it coordinates, and how it isolates processes.
func (r *replica) announce(embedded bool) {
	cfg := r.cfg.Load()
	args := []any{"redis", r.redis.where(), "namespace", cfg.Namespace, "isolation", r.processes.host.Isolation(),
		"warden", fmt.Sprintf("process %d", r.processes.warden.PID()),
		"jobs", len(cfg.Jobs), "config", cfg.Digest()[:12], "version", version}
	if len(r.redis.quorum) > 0 {
		args = append(args, "quorum", r.redis.whereLocks())
	}
	if len(cfg.Replica.Labels) > 0 {
		args = append(args, "labels", labelled(cfg.Replica.Labels))
	}
	if embedded {
		r.log.Warn("starting with an embedded Redis: a trial, coordinates with nobody else", args...)
		return
	}
	r.log.Info("starting", args...)
}
