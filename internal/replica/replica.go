// Package replica implements `cronclave run`. It connects the parts of the program, keeps the replica registered, does the cluster's housekeeping if the
// replica is the leader, reloads the configuration, and serves HTTP requests.
package replica

import (
	"context"
	crypto "crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/events"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/logging"
	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/process"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/replica/dispatch"
	"github.com/cronclave/cronclave/internal/replica/leader"
	"github.com/cronclave/cronclave/internal/sdnotify"
	"github.com/cronclave/cronclave/internal/warden"
	"github.com/cronclave/cronclave/internal/web/dashboard"
	"github.com/cronclave/cronclave/internal/web/metrics"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
)

// Config configures a [Replica].
type Config struct {
	// Jobs is the configuration at the start. It was read from Files.
	Jobs  *config.Config
	Files *config.Files
	// Load reads the configuration again. Only one goroutine calls it.
	Load func() (*config.Config, *config.Files, error)
	// Redis belongs to the replica. [Replica.Close] closes it, and so does New after an error.
	Redis *redisconn.Conn
	// Trial is set if Redis is embedded. The settings of Redis are then not checked.
	Trial bool
	// Name is the replica's name. Version is the version of the program.
	Name, Version string
	// Log is the log of the process. LogDropped returns the number of lines that were dropped from it.
	Log        hclog.Logger
	LogDropped func() uint64
	WardenLog  WardenLog
	// ClockOffset is added to this machine's wall clock, to simulate a wrong clock.
	ClockOffset time.Duration
	// Notifier sends the state of the replica to the service manager.
	Notifier sdnotify.Notifier
}

// A Replica is one replica of a cluster. [Replica.Run] may be called once, and [Replica.Abort] at any time.
type Replica struct {
	name, id string // name is for display; id distinguishes replicas of the same name
	version  string
	trial    bool

	cfg atomic.Pointer[config.Config] // the configuration in use
	condition
	log        hclog.Logger
	redis      *redisconn.Conn
	locks      *locking.Client
	processes  *Processes
	scheduler  *scheduler.Scheduler
	journal    *journal.Journal
	live       *liveOutput
	leadership *election.Leadership
	peers      peers
	membership membership
	reloader   reloader
	monitor    monitor
	events     *events.Bus
	traces     *tracer
	leads      atomic.Bool
	clock      func() time.Time // this machine's wall clock, plus Config.ClockOffset
	started    time.Time
	readiness  readiness

	supervision supervision
}

// New returns a replica. It listens on the address of [server] and starts the warden, but sends nothing to Redis. [Replica.Close] releases its resources.
func New(cfg Config) (*Replica, error) {
	r := &Replica{name: cfg.Name, id: cfg.Name + "-" + strings.ToLower(crypto.Text()[:8]), version: cfg.Version, trial: cfg.Trial,
		log: cfg.Log.With("replica", cfg.Name), redis: cfg.Redis, started: time.Now(),
		clock: func() time.Time { return time.Now().Add(cfg.ClockOffset) }}
	r.peers.self = r.id
	r.supervision = supervision{to: cfg.Notifier, log: r.log, describe: r.describeState, sinceIteration: func() (time.Duration, bool) { return r.scheduler.SinceIteration() }}
	members := &fleet{log: r.log, self: r.name, jobs: r.everywhereDigests, news: make(chan struct{}, 1)}
	r.reloader = reloader{log: r.log, fleet: members, supervision: &r.supervision, cfg: &r.cfg, refused: &r.refused, monitor: &r.monitor, check: r.checkJobs, instances: r.withInstances, apply: r.applyJobs,
		describeSoon: r.membership.publisher.describeSoon, load: cfg.Load, files: cfg.Files}
	r.cfg.Store(cfg.Jobs.ForReplicas(nil, nil)) // its instances follow when this replica is registered
	if err := r.prepareParts(cfg); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Replica) prepareParts(cfg Config) (err error) {
	logWarnings(cfg.Log, cfg.Jobs)
	r.monitor.log, r.events = r.log, events.NewBus(r.log)
	r.traces = newTracer(r.cfg.Load, r.name, r.version, r.log, r.serverNow)
	err = r.monitor.openServer(r.cfg.Load(), cfg.Redis, r.version, metrics.Gauges{
		Leader: r.leads.Load, RedisUp: r.redisUp, ClockOffset: r.clockOffset, Cluster: r.monitor.cluster.Load, LogDropped: cfg.LogDropped, SpansLost: r.traces.Dropped,
		Lateness: func() (time.Duration, bool) { return r.scheduler.Lateness() }, Running: func() int { return r.scheduler.Running() },
		ByJob: func() map[string]int { return r.scheduler.RunningByJob() },
	}, r.unreadyReason, func() bool { return r.readiness.isPhase(starting) }, r.localFacts)
	if err != nil {
		return err
	}
	r.events.Subscribe(func(e events.Event) { logAbandoned(r.log, e) })
	r.events.Subscribe(func(e events.Event) {
		if outcome, is := e.(events.Outcome); is {
			r.traces.addRun(outcome.Record)
		}
	})
	if r.monitor.metrics != nil {
		r.events.Subscribe(r.monitor.metrics.Count)
	}
	if err = r.connectRedis(); err != nil {
		return err
	}
	process.KeepInherited()
	if r.processes, err = StartProcesses(r.log, cfg.WardenLog); err != nil {
		return err
	}
	if err = r.checkJobs(cfg.Jobs); err != nil {
		return err
	}
	if r.scheduler, err = r.newScheduler(r.cfg.Load()); err != nil {
		return err
	}
	r.reloader.fleet.journal = r.journal
	r.membership = membership{fleet: r.reloader.fleet, journal: r.journal, log: r.log, peers: &r.peers, entry: r.registryEntry, now: r.serverNow, evicts: r.evictsExpiring, news: make(chan struct{}, 1),
		incidents: incidents{journal: r.journal, replica: r.name, events: r.events}, problems: problemWatch{events: r.events},
		announcer: announcer{sweep: r.sweepLocks, log: r.log, begin: make(chan struct{}, 1)},
		publisher: publisher{journal: r.journal, log: r.log, version: r.version, config: r.cfg.Load, now: r.locks.ServerTime, news: make(chan struct{}, 1)}}
	return nil
}

func (r *Replica) connectRedis() (err error) {
	cfg := r.cfg.Load()
	locks := r.redis.LockConfig(cfg.Namespace, r.name)
	locks.OnForbidden, locks.Hooks = r.warnForbidden, r.monitor.leaseHooks(&r.margins)
	if r.locks, err = locking.New(locks); err != nil {
		return err
	}
	if r.journal, err = r.redis.OpenJournal(cfg, func(first journal.Record) {
		first.Output = nil // thousands of outcomes may wait for a subscriber, and no subscriber reads their outputs
		r.events.Publish(events.Outcome{Record: first})
	}, func(rec *journal.Record) []string { return dispatch.Posts(r.cfg.Load(), rec) }); err != nil {
		return err
	}
	r.live = newLiveOutput(r.journal, r.log)
	r.leadership, err = election.NewLeadership(election.LeadershipConfig{Locks: r.locks, Name: cluster.Leadership})
	return err
}

// localFacts returns what this replica knows without Redis.
func (r *Replica) localFacts() dashboard.Local {
	facts := dashboard.Local{Namespace: r.cfg.Load().Namespace, Replica: r.name, Runs: r.live.localRuns()}
	if since := r.membership.incidents.away.Load(); since != nil {
		facts.Silent = *since
	}
	return facts
}

// Abort kills the jobs that still run in a drain, so that Run returns soon. It does not wait.
func (r *Replica) Abort() { r.scheduler.Abort() }

func (r *Replica) newScheduler(cfg *config.Config) (*scheduler.Scheduler, error) {
	elector, err := election.New(election.Config{Locks: r.locks})
	if err != nil {
		return nil, err
	}
	r.capacity = maxRunning(cfg.Replica.MaxRunning, limitsFor(cfg.Server.Listen != ""), r.log)
	return scheduler.New(scheduler.Config{
		Jobs: r.schedulerJobs(cfg), Claimer: elector, Journal: recorder{r.journal, &r.monitor}, Logger: r.log, Replica: r.name,
		MaxRunning: r.capacity, DrainTimeout: cfg.Replica.DrainTimeout, Clock: r.clock,
		Streak: recorder{r.journal, &r.monitor}.streakFields, GrantEvents: elector, Requests: requests{r.journal, elector}, Pools: r.monitor.countedPools(elector), Peers: r.peers.idsWithLabels, Gone: r.peers.isGone, Ready: r.processes.warden.Ready,
		Probe: r.processes.Host.Probe, Labels: cfg.Replica.Labels,
	})
}

// schedulerJobs returns the enabled jobs of a configuration. Their runners publish output for followers, and measure start delays.
func (r *Replica) schedulerJobs(cfg *config.Config) []scheduler.Job {
	open := func(job *config.Job, run *scheduler.Run) Output {
		o := &sharedOutput{live: r.live, run: run}
		if job.Output.Log {
			o.log = logging.NewOutput(run.Logger)
		}
		return o
	}
	jobs := jobsOf(cfg, runners{cfg: cfg, host: r.processes.Host, open: open, traces: r.traces})
	for i := range jobs {
		jobs[i].Runner = observedRunner{jobs[i].Runner, r.live, &r.monitor, r.serverNow}
	}
	return jobs
}

// checkJobs returns an error if this machine can't run one of the jobs of a configuration.
func (r *Replica) checkJobs(cfg *config.Config) error {
	if err := checkInstanceNames(cfg, r.name); err != nil {
		return err
	}
	return checkFit(cfg, r.processes.Host.Check)
}

// applyJobs makes the scheduler run the jobs of a configuration, and forgets the locks of other jobs.
func (r *Replica) applyJobs(ctx context.Context, cfg *config.Config) error {
	if err := r.scheduler.Reload(ctx, r.schedulerJobs(cfg)); err != nil {
		return err //nolint:wrapcheck // the error names the operation
	}
	everywhere := cfg.Everywhere()
	r.locks.Engine().ForgetLocks(func(lock string) bool {
		job, ok := election.JobOf(lock)
		return ok && cfg.Job(job) == nil && !slices.Contains(everywhere, job)
	})
	return nil
}

// Close stops the warden, and closes the server and the connections to Redis. Call it after Run has returned.
func (r *Replica) Close() {
	r.monitor.close()
	if r.processes != nil {
		r.processes.Close()
	}
	if r.locks != nil {
		_ = r.locks.Close() // it only waits for background work
	}
	if r.redis != nil {
		_ = r.redis.Close() // no request is in progress
	}
}

// Run waits for Redis, and then runs jobs until ctx ends and the drain is over. Each value from reload makes the replica read the configuration again, until
// the drain begins.
func (r *Replica) Run(ctx context.Context, reload <-chan struct{}) error {
	served, shut := context.WithCancel(context.WithoutCancel(ctx))
	var web sync.WaitGroup // ends after all runs and their records
	web.Go(func() { r.monitor.runServer(served) })
	web.Go(func() { r.traces.Run(served) })
	web.Go(func() { r.supervision.runStatus(served) })
	watched, unwatch := context.WithCancel(ctx)
	web.Go(func() { r.supervision.runWatchdog(watched) })
	defer web.Wait()
	defer shut()
	defer unwatch()
	r.announceStart()
	// The service manager must neither wait for Redis, which may be away for hours, nor leave the replica without a watchdog meanwhile.
	r.supervision.sendState(sdnotify.Ready, sdnotify.Status(r.describeState()))
	h, err := r.awaitRedis(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	r.membership.replaces, err = claimName(ctx, journal.Replica{ID: r.id, Name: r.name}, r.cfg.Load().Namespace, r.journal, r.log)
	if err != nil || ctx.Err() != nil {
		return err
	}
	for _, w := range h.Warnings {
		r.log.Warn(w.Message, "code", w.Code)
	}
	return r.runScheduler(ctx, reload)
}

// runScheduler runs the scheduler and all background tasks of the replica until ctx ends and the drain is over.
func (r *Replica) runScheduler(ctx context.Context, reload <-chan struct{}) (err error) {
	work, drain := context.WithCancelCause(ctx)
	campaign, resign := context.WithCancel(work)
	registered, leave := context.WithCancel(context.WithoutCancel(ctx))
	r.readiness.enterPhase(scheduling)
	r.supervision.sendState(sdnotify.Status(fmt.Sprintf("scheduling %d jobs", len(r.cfg.Load().WrittenJobs()))))
	var beside sync.WaitGroup
	beside.Go(func() { r.leadership.Campaign(campaign, r.lead) })
	beside.Go(func() { r.membership.run(registered) })
	beside.Go(func() { r.events.Run(registered) })
	beside.Go(func() { watchStandstill(registered, r.serverNow, r.stoodStill) })
	defer context.AfterFunc(work, func() {
		r.readiness.enterPhase(draining)
		r.supervision.announceDrain(r.cfg.Load().Replica.DrainTimeout)
		r.membership.renewSoon()
	})()
	beside.Go(func() { r.live.run(registered) })
	beside.Go(func() { r.monitor.recallPast(work, r.journal, r.cfg.Load, r.leads.Load) })
	beside.Go(func() { r.processes.watchWarden(work, drain) })
	beside.Go(func() { r.reloader.run(work, reload) })
	beside.Go(func() { (&accessWatch{dangers: r.redis.Dangers, shown: &r.redisAccess, log: r.log}).run(registered) })
	err = r.scheduler.Run(work)
	drain(nil) // no effect if the drain already has a cause
	resign()
	leave()
	beside.Wait()
	if ctx.Err() != nil {
		r.log.Info("drained") // err is ignored: the requested drain is complete, even if Redis has never answered
		return nil
	}
	if err == nil && errors.Is(context.Cause(work), warden.ErrGone) {
		r.log.Error("drained: the warden cannot be started, and no run starts without it; check memory, processes and file descriptors")
		return context.Cause(work)
	}
	return err
}

func (r *Replica) lead(ctx context.Context, term *election.Term) {
	r.log.Info("leadership won", "token", term.Token())
	r.leads.Store(true)
	defer r.leads.Store(false)
	r.monitor.recalled.Store(false)
	cfg := leader.Config{Locks: r.locks, Redis: r.redis, Journal: r.journal, Jobs: r.cfg.Load, Replicas: r.peers.alive, Sweep: r.sweepLocks, Now: r.serverNow,
		Describe: r.membership.publisher.currentJobs, HeartbeatFault: func(what string) { r.heartbeatError.Store(&what) }, Replica: r.name, Version: r.version, Log: r.log}
	if r.monitor.metrics != nil {
		cfg.State = r.monitor.cluster.Store
	}
	leader.Lead(ctx, term, cfg)
}

// awaitRedis waits until Redis answers and is fit to coordinate. It returns an error only if waiting does not remedy it.
func (r *Replica) awaitRedis(ctx context.Context) (redisconn.Health, error) {
	for retry := backoff.New(100*time.Millisecond, 5*time.Second); ; {
		h, err := r.lookAtRedis(ctx)
		if err == nil || isPermanent(err) {
			return h, err
		}
		pause := retry.Next()
		r.logStartFault(err, pause)
		if !backoff.Sleep(ctx, pause) {
			return h, nil
		}
	}
}

// logStartFault logs why the replica does not start yet. The level is ERROR if an operator has to act. The replica keeps trying, because the operator may fix
// the cause in Redis, such as a missing permission.
func (r *Replica) logStartFault(err error, pause time.Duration) {
	args := []any{"redis", r.redis.Where(), "error", err, "retry_in", pause.String()}
	t := redisconn.TroubleOf(err)
	if t == redisconn.Forbidden {
		t.Remedy = r.neededRights().All()
	}
	switch {
	case t == redisconn.Unreachable:
		r.log.Warn("Redis does not answer; trying again", append(args, "remedy", "start it, or correct [redis].url; a trial on one machine needs none: cronclave run --embedded-redis")...)
	case t.Remedy == "":
		r.log.Warn("Redis "+t.What+"; trying again", args...)
	default:
		r.log.Error("Redis "+t.What+"; trying again", append(args, "remedy", t.Remedy)...)
	}
}

// warnForbidden warns that an ACL forbids the channel of grants. The replica works without the channel.
func (r *Replica) warnForbidden(channel string, err error) {
	r.log.Warn("Redis forbids the channel of grants; ticks still run once, but every replica claims every tick, which is more load on Redis",
		"channel", channel, "error", err, "remedy", "ACL SETUSER "+r.neededRights().User+" &"+channel)
}

func (r *Replica) neededRights() redisconn.Rights { return r.redis.Rights(r.cfg.Load().Namespace) }

func (r *Replica) lookAtRedis(ctx context.Context) (h redisconn.Health, err error) {
	if !r.trial { // an embedded Redis has no settings to check
		h, err = r.redis.Examine(ctx)
	}
	if err == nil {
		r.evicting.Store(h.EvictsExpiring())
		err = r.journal.ClaimFormat(ctx)
	}
	if unfit := UnfitData(err); unfit != nil {
		return h, unfit
	}
	return h, err
}

func (r *Replica) announceStart() {
	cfg := r.cfg.Load()
	args := []any{"redis", r.redis.Where(), "namespace", cfg.Namespace, "isolation", r.processes.Host.Isolation(),
		"warden", fmt.Sprintf("process %d", r.processes.warden.PID()),
		"jobs", len(cfg.WrittenJobs()), "config", cfg.Digest()[:12], "version", r.version}
	if r.redis.HasQuorum() {
		args = append(args, "quorum", r.redis.WhereLocks())
	}
	if len(cfg.Replica.Labels) > 0 {
		args = append(args, "labels", cluster.FormatLabels(cfg.Replica.Labels))
	}
	if r.trial {
		r.log.Warn("starting with an embedded Redis: a trial that other machines do not reach", args...)
		r.announceView()
		return
	}
	r.log.Info("starting", args...)
}

// announceView logs the command that reads an embedded Redis from another terminal.
func (r *Replica) announceView() {
	view, ours := r.redis.InProcess()
	switch {
	case !ours:
	case view.Fault != nil:
		r.log.Warn("no other terminal can read this trial; set TMPDIR to a short plain path such as /tmp, and start again", "error", view.Fault)
	default:
		at := "--redis " + view.URL
		if ns := r.cfg.Load().Namespace; ns != config.DefaultNamespace {
			at += " --namespace " + ns
		}
		r.log.Info("look at this trial from another terminal, as the same user: status, history, why, audit and logs work; trigger, cancel and pause are refused", "try", "cronclave status "+at)
	}
}

// isPermanent reports whether waiting cannot remedy an error of the start.
func isPermanent(err error) bool {
	var usage UsageError
	return errors.Is(err, redisconn.ErrUnfit) || errors.As(err, &usage)
}

// serverNow returns the time by the clock of Redis if it is known, and otherwise by the clock of this machine.
func (r *Replica) serverNow() time.Time {
	if now, known := r.locks.Engine().EstimatedTime(); known {
		return now
	}
	return r.clock()
}

// clockOffset returns the time of this machine minus the time of Redis. known is false until Redis has answered.
func (r *Replica) clockOffset() (offset time.Duration, known bool) {
	now, known := r.locks.Engine().EstimatedTime()
	return r.clock().Sub(now), known
}

// redisUp reports whether Redis answers now, on the replica's own connections. It sends a request, because the last answer may be some seconds old.
func (r *Replica) redisUp() bool { return r.redis.Glance(context.Background()) == nil }

// locksUp is redisUp, but with a quorum the server of the history may be away.
func (r *Replica) locksUp() bool { return r.redis.GlanceAtLocks(context.Background()) == nil }

// evictsExpiring reports whether Redis evicts keys with a time to live if memory runs short. It asks only one server of the Redis with the
// registrations, because all masters of a Redis Cluster have the same configuration. Without an answer it returns the last known result.
func (r *Replica) evictsExpiring(ctx context.Context) bool {
	if h, err := r.redis.ExamineKeeper(ctx, r.id); err == nil {
		r.evicting.Store(h.EvictsExpiring())
	}
	return r.evicting.Load()
}

func (r *Replica) stoodStill(i journal.Interval) {
	r.standstill.Store(&i)
	r.log.Warn("this replica stood still: its process was stopped, or got no CPU time; its leases may have ended, and its runs been killed",
		"code", "stood_still", "since", i.From.UTC().Format(time.RFC3339), "stood_still", i.Length().Round(time.Second).String())
	r.membership.renewSoon()
}

func (r *Replica) registryEntry() journal.Replica {
	now := r.serverNow()
	return r.condition.addCondition(journal.Replica{
		ID: r.id, Name: r.name, Process: proc.ID(), Version: r.version, Started: r.started, Seen: now, ConfigDigest: r.cfg.Load().Digest(),
		ZoneData: r.cfg.Load().Zones.Version(), Zones: hashZones(r.cfg.Load(), now),
		ClockOffsetMS: r.clock().Sub(now).Milliseconds(), ClockErrorMS: r.locks.Engine().EstimateError().Milliseconds(), Running: r.scheduler.Running(),
		Expected: r.cfg.Load().Cluster.Replicas, Labels: r.cfg.Load().Replica.Labels, Draining: r.readiness.isPhase(draining), Unable: cluster.FirstLine(r.scheduler.Unable(), mostUnable),
		Unstartable: firstUnstartable(r.scheduler.Unstartable()),
	})
}

type phase int32

const (
	starting   phase = iota // the replica waits for Redis
	scheduling              // the replica claims ticks
	draining                // the replica finishes its last runs
)

// readiness holds the phase of the replica and the last answer of Redis. Clients without a token may request the readiness, so Redis is called at most once a
// second.
type readiness struct {
	phase atomic.Int32 // holds a phase

	mu    sync.Mutex
	asked time.Time
	up    bool
}

func (r *readiness) enterPhase(p phase) { r.phase.Store(int32(p)) }

func (r *readiness) isPhase(p phase) bool { return phase(r.phase.Load()) == p }

// unreadyReason returns the reason why the replica claims nothing now, or "" if it claims ticks.
func (r *Replica) unreadyReason() string {
	switch {
	case r.readiness.isPhase(starting):
		return "starting: Redis has not answered yet, or is not fit to coordinate"
	case r.readiness.isPhase(draining):
		return "draining: the last runs end, and no more are started"
	case r.scheduler.Unable() != "":
		return "unable to start programs: see the log, or cronclave status"
	case !r.readiness.redisUp(r.locksUp):
		return "Redis does not answer, or is not fit to coordinate"
	}
	return ""
}

// redisUp returns the last result of look. It calls look at most once a second.
func (r *readiness) redisUp(look func() bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.asked) >= time.Second {
		r.up, r.asked = look(), time.Now()
	}
	return r.up
}
