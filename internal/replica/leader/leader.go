// Package leader performs the duties of the cluster's leader: housekeeping, the heartbeat to an alert service, and checks for lost replicas, full pools and differing configurations.
package leader

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/notify"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/replica/dispatch"
	"github.com/cronclave/cronclave/internal/web/metrics"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

const (
	// DescribeEvery is the interval at which each replica writes descriptions of its jobs to Redis. A job that no replica has described for describedWithin
	// counts as removed.
	DescribeEvery   = time.Minute
	describedWithin = 3 * DescribeEvery
	sweepEvery      = time.Minute
	// forgetAfter is the time after which the lock of a job is removed, if in all that time no replica had the job and the lock was unused. A job that is
	// configured again earlier continues after its last decided tick. A job that is configured again later begins like a new job. In both cases no tick runs
	// again.
	forgetAfter = 24 * time.Hour
)

// Config configures the duties of a leader.
type Config struct {
	Locks   *locking.Client
	Redis   *redisconn.Conn
	Journal *journal.Journal
	// Jobs returns the configuration in use.
	Jobs func() *config.Config
	// Describe returns the descriptions of the jobs in use.
	Describe func(context.Context) ([]journal.JobInfo, error)
	// Replicas returns the replicas that were alive at the last reading of the registry; nil before the first reading.
	Replicas func() []journal.Replica
	// Sweep inspects all jobs of this replica and the jobs in others. It records the outcomes of runs whose replica died.
	Sweep func(ctx context.Context, others ...string) error
	// Now returns the time by the clock of Redis.
	Now func() time.Time
	// HeartbeatFault receives the error of the last heartbeat; "" for none.
	HeartbeatFault func(string)
	// State receives the state of the cluster for the metrics, and nil while it is unknown. If State is nil, the state is not read.
	State func(*metrics.Cluster)
	// Replica is the name of this replica, and Version the version of its program.
	Replica, Version string
	Log              hclog.Logger
}

// Lead performs the duties of the cluster's leader until its term ends.
func Lead(ctx context.Context, term *election.Term, cfg Config) {
	elector, err := election.New(election.Config{Locks: cfg.Locks})
	if err != nil {
		cfg.Log.Error("housekeeping cannot start", "error", err) // not reached: New fails only without Locks
		return
	}
	view, err := cluster.New(cluster.Config{Conn: cfg.Redis, Journal: cfg.Journal, Namespace: cfg.Jobs().Namespace, Zones: func() *cronspec.Zones { return cfg.Jobs().Zones }})
	if err != nil {
		cfg.Log.Error("housekeeping cannot start", "error", err) // not reached: the replica made its own clients with these settings
		return
	}
	defer func() { _ = view.Close() }() // Close only ends background work, so an error has no consequence
	beats := heartbeat{client: newBeatClient(), version: cfg.Version, log: cfg.Log, config: func() config.Heartbeat { return cfg.Jobs().Heartbeat }, fault: cfg.HeartbeatFault}
	reader := clusterReader{journal: cfg.Journal, elector: elector, config: cfg.Jobs, describe: cfg.Describe, now: cfg.Now}
	var duties sync.WaitGroup
	duties.Go(func() { beats.run(ctx) })
	duties.Go(func() { watchAgreement(ctx, cfg.Replicas, cfg.Journal, cfg.Log) })
	duties.Go(func() { watchReplicas(ctx, cfg.Journal, cfg.Log) })
	pools := poolWatch{operator: view, now: cfg.Now, log: cfg.Log}
	duties.Go(func() { pools.run(ctx, cfg.Jobs) })
	duties.Go(func() { reader.watchCluster(ctx, cfg.State, cfg.Log) })
	problems := problemReader{journal: cfg.Journal, config: cfg.Jobs, alive: cfg.Replicas, now: cfg.Now, last: reader.last.Load, full: pools.problems.Load}
	sends := dispatch.New(dispatch.Config{Journal: cfg.Journal, Jobs: cfg.Jobs, Token: int64(term.Token()), Now: cfg.Now, Problems: problems.read, Replica: cfg.Replica, Version: cfg.Version, Log: cfg.Log})
	duties.Go(func() { sends.Run(ctx) })
	h := housekeeping{began: time.Now(), journal: cfg.Journal, elector: elector, sweep: cfg.Sweep, now: cfg.Now, log: cfg.Log}
	repeatEvery(ctx, sweepEvery, func() { h.maintainData(ctx, disabledJobs(cfg.Jobs())) })
	duties.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, election.ErrEndangered) || term.Context().Err() != nil {
		cfg.Log.Warn("leadership lost", "token", term.Token(), "error", cause)
	}
}

func repeatEvery(ctx context.Context, period time.Duration, f func()) {
	for ; ctx.Err() == nil; backoff.Sleep(ctx, period) {
		f()
	}
}

func disabledJobs(cfg *config.Config) (names []string) {
	for i := range cfg.Jobs {
		if !cfg.Jobs[i].Enabled {
			names = append(names, cfg.Jobs[i].Name)
		}
	}
	return names
}

type housekeeping struct {
	began   time.Time // start of the term
	journal *journal.Journal
	elector *election.Elector
	sweep   func(ctx context.Context, idle ...string) error
	now     func() time.Time // the clock of Redis
	log     hclog.Logger
}

// maintainData records runs whose replica died while no other replica was up, including runs of jobs that no replica has any more. It also removes the locks
// of jobs that no replica has had for forgetAfter.
func (h *housekeeping) maintainData(ctx context.Context, disabled []string) {
	warn := func(what string, err error) {
		if err != nil && ctx.Err() == nil {
			h.log.Warn("housekeeping: "+what, "error", err)
		}
	}
	if time.Since(h.began) >= describedWithin { // before, after an outage of Redis or of all replicas, replicas may not have described their jobs yet
		_, err := h.journal.ForgetJobs(ctx, h.now().Add(-describedWithin))
		warn("remove what is left of jobs that no replica has", err)
	}
	gone, err := h.journal.GoneJobs(ctx)
	warn("look for jobs that no replica has", err)
	warn("look at all jobs", h.sweep(ctx, slices.AppendSeq(slices.Clone(disabled), maps.Keys(gone))...))
	warn("remove the locks of jobs that no replica has", h.removeGoneLocks(ctx, gone))
}

// removeGoneLocks removes the locks, streaks and durations of jobs that no replica has had for forgetAfter. Their history expires by itself.
func (h *housekeeping) removeGoneLocks(ctx context.Context, gone map[string]time.Time) error {
	var old []string
	before := h.now().Add(-forgetAfter)
	for name, seen := range gone {
		if seen.Before(before) {
			old = append(old, name)
		}
	}
	if len(old) == 0 {
		return nil
	}
	slices.Sort(old)
	removed, err := h.elector.Forget(ctx, old, before)
	if errors.Is(err, locking.ErrQuorum) { // with a quorum, locks are never removed
		removed, err = old, nil
	} else if len(removed) > 0 {
		h.log.Info("locks removed of jobs that no replica has", "jobs", removed, "after", forgetAfter.String())
	}
	return errors.Join(err, h.journal.ForgetFacts(ctx, removed...), h.journal.DropGone(ctx, removed...))
}

// watchAgreement logs when replicas begin to disagree on the configuration, and when they agree again. Two checks
// in a row must find the same state, because replicas differ for a moment while a new configuration is rolled out.
func watchAgreement(ctx context.Context, alive func() []journal.Replica, j *journal.Journal, log hclog.Logger) {
	var last, logged string // groups of replicas as text; "" if the replicas agree
	repeatEvery(ctx, cluster.RegisterEvery, func() {
		replicas := alive()
		if replicas == nil {
			return
		}
		c, now := cluster.GroupByConfig(replicas), ""
		if len(c) > 1 {
			now = c.String()
		}
		settled := now == last
		last = now
		switch {
		case !settled || now == logged:
			return
		case now == "":
			log.Info("replicas agree on the configuration again", "code", cluster.CodeConfigDiffers)
		default:
			where, err := c.Differences(ctx, j)
			if err != nil && ctx.Err() != nil {
				return
			}
			log.Warn("replicas run different configurations", "code", cluster.CodeConfigDiffers, "replicas", now, "differ", strings.Join(where, "; "))
		}
		logged = now
	})
}

// confirmLost is the time for which the registration of a replica must have been missing before the replica counts as lost. In an outage of Redis all
// registrations expire, but the replicas register again soon afterwards.
const confirmLost = 2 * cluster.RegisterEvery

// watchReplicas logs the loss of each replica once, even if the leader changes.
func watchReplicas(ctx context.Context, j *journal.Journal, log hclog.Logger) {
	missing := lostWatch{}
	repeatEvery(ctx, cluster.RegisterEvery, func() {
		lost, err := j.LostReplicas(ctx)
		if err != nil {
			missing.since = nil // replicas may have been back in the meantime, so the confirmation starts over
			log.Debug("cannot look for lost replicas", "error", err)
			return
		}
		for _, l := range missing.confirmedLost(lost, time.Now()) {
			name := journal.NameOf(l.ID)
			claimed, err := j.ClaimLost(ctx, l)
			if err != nil {
				log.Debug("cannot claim a lost replica", "replica_lost", name, "error", err)
			}
			if claimed {
				log.Warn("replica lost", "replica_lost", name, "last_seen", l.Seen.UTC().Format(time.RFC3339))
			}
		}
	})
}

// A lostWatch distinguishes lost replicas from replicas that are only late.
type lostWatch struct{ since map[string]time.Time }

func (w *lostWatch) confirmedLost(lost []journal.LostReplica, now time.Time) (all []journal.LostReplica) {
	since := map[string]time.Time{}
	for _, l := range lost {
		first, known := w.since[l.ID]
		if !known {
			first = now
		}
		since[l.ID] = first
		if now.Sub(first) >= confirmLost {
			all = append(all, l)
		}
	}
	w.since = since
	return all
}

const (
	lookAtPools = 15 * time.Second
	// fullFor is the time for which a pool must have been full, and its first waiter must have waited, before a warning is logged. Short waits are normal for jobs
	// that share a pool.
	fullFor = time.Minute
	// freeFor is the time for which a pool must not have been full before a new warning about it is logged.
	freeFor = 5 * time.Minute
)

// A poolWatch remembers the pools that were full within the last minutes, so that it warns once per occurrence.
type poolWatch struct {
	operator *cluster.Operator
	now      func() time.Time // the clock of Redis
	log      hclog.Logger
	known    map[string]fullPool
	began    time.Time                          // time of the first check
	problems atomic.Pointer[[]dispatch.Problem] // the known pools after the last check; nil before the first one
}

// run logs once per occurrence that a pool is full while runs wait for it. Without pools it sends nothing to Redis.
func (w *poolWatch) run(ctx context.Context, cfg func() *config.Config) {
	repeatEvery(ctx, lookAtPools, func() {
		if pools := cfg().Pools; len(pools) > 0 {
			w.checkPools(ctx, pools)
		}
	})
}

type fullPool struct {
	since time.Time // time since which every check has found the pool full; zero if the last check did not
	seen  time.Time // time of the last check that found the pool full
	// problem describes the pool at the time of the warning; unsettled before it.
	problem dispatch.Problem
}

func (w *poolWatch) checkPools(ctx context.Context, pools map[string]config.Pool) {
	slots := map[string]int{}
	for name, p := range pools {
		slots[name] = p.Slots
	}
	full, err := w.operator.FullPools(ctx, slots)
	if err != nil {
		w.log.Debug("cannot look for full pools", "error", err)
		return
	}
	due := w.duePools(full, w.now())
	problems := w.listProblems(pools, w.now())
	w.problems.Store(&problems)
	for _, p := range due {
		w.log.Warn("pool is full while others wait for a slot", "code", cluster.CodePoolFull, "pool", p.Name, "holder", p.HeldBy(), "waiters", p.Waiters,
			"remedy", p.Remedy(), "since", p.Waiting[0].Since.UTC().Format(time.RFC3339))
	}
}

// listProblems returns the pools that were full within freeFor. Before the first check the leader before may have found any pool full.
func (w *poolWatch) listProblems(pools map[string]config.Pool, now time.Time) []dispatch.Problem {
	problems := []dispatch.Problem{}
	if now.Sub(w.began) < freeFor {
		for name := range pools {
			if _, known := w.known[name]; !known {
				problems = append(problems, dispatch.Problem{Name: notify.PoolFull, Subject: name, Unsettled: true})
			}
		}
	}
	for _, is := range w.known {
		problems = append(problems, is.problem)
	}
	return problems
}

// duePools returns the full pools for which a warning is due, once per occurrence.
func (w *poolWatch) duePools(full []cluster.Pool, now time.Time) (list []cluster.Pool) {
	known := map[string]fullPool{}
	if w.began.IsZero() {
		w.began = now
	}
	for name, was := range w.known {
		if was.since = (time.Time{}); now.Sub(was.seen) < freeFor {
			known[name] = was
		}
	}
	for _, p := range full {
		is := known[p.Name]
		if is.since, is.seen = w.known[p.Name].since, now; is.since.IsZero() {
			is.since = now
		}
		warned := is.problem.Name != "" && !is.problem.Unsettled
		if !warned {
			is.problem = dispatch.Problem{Name: notify.PoolFull, Subject: p.Name, Unsettled: true}
		}
		if waits := p.Waiting[0].Since; !warned && now.Sub(is.since) >= fullFor && waits != nil && now.Sub(*waits) >= fullFor {
			is.problem.Since, is.problem.Unsettled = *waits, false
			is.problem.Text = fmt.Sprintf("pool %s is full, and %d wait for a slot; held by %s", p.Name, p.Waiters, p.HeldBy())
			list = append(list, p)
		}
		known[p.Name] = is
	}
	w.known = known
	return list
}
