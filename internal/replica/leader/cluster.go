package leader

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
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/web/metrics"
)

// readClusterEvery is the interval at which the leader reads the state of the cluster for its metrics. Each reading sends one batch of requests for all jobs.
const readClusterEvery = 15 * time.Second

// A clusterReader reads the state of the cluster for the metrics and the notifications. Only one goroutine may use it, because of its TickCache; but another may
// load last.
type clusterReader struct {
	journal  *journal.Journal
	elector  *election.Elector
	config   func() *config.Config
	describe func(context.Context) ([]journal.JobInfo, error)
	now      func() time.Time // the clock of Redis
	ticks    cluster.TickCache
	last     atomic.Pointer[reading] // nil before the first one
}

// A reading has what notifications need of the state of the cluster.
type reading struct {
	lost map[string]time.Time // time at which each lost replica was last seen, by name
	late []jobCondition
}

type jobCondition struct {
	job string
	cluster.Condition
}

// watchCluster passes the state of the cluster to report until ctx ends. It passes nil after an error and at the end. If report is nil, it reads the state only
// while there are targets of notifications.
func (r *clusterReader) watchCluster(ctx context.Context, report func(*metrics.Cluster), log hclog.Logger) {
	measured := report != nil
	if !measured {
		report = func(*metrics.Cluster) {}
	}
	defer report(nil)
	repeatEvery(ctx, readClusterEvery, func() {
		if !measured && len(r.config().Notify) == 0 {
			return
		}
		known, err := r.readCluster(ctx)
		if err != nil {
			log.Debug("cannot read the state of the cluster for the metrics", "error", err)
		}
		report(known)
	})
}

func (r *clusterReader) readCluster(ctx context.Context) (*metrics.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, readClusterEvery)
	defer cancel()
	known := &metrics.Cluster{Replicas: map[string]int{}, Lost: map[string]time.Time{}}
	away, err := r.readReplicas(ctx, known)
	if err != nil {
		return nil, err
	}
	cfg := r.config()
	jobs, err := r.describe(ctx)
	if err != nil {
		return nil, err
	}
	late, err := r.readJobs(ctx, jobs, known)
	if err != nil {
		return nil, err
	}
	r.last.Store(&reading{away, late})
	if known.Pools, err = r.readPools(ctx, cfg.Pools); err != nil {
		return nil, err
	}
	if known.Targets, err = r.journal.TargetStates(ctx, slices.Collect(maps.Keys(cfg.Notify))); err != nil {
		return nil, err //nolint:wrapcheck // the error names the operation
	}
	known.Ticks = r.nextTicks(jobs)
	return known, nil
}

// readReplicas returns the time at which each lost replica was last seen, by name. Metrics have only the newest.
func (r *clusterReader) readReplicas(ctx context.Context, known *metrics.Cluster) (away map[string]time.Time, err error) {
	replicas, err := r.journal.Replicas(ctx)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) { // with ErrCorrupt, only damaged registrations are missing
		return nil, err //nolint:wrapcheck // the error names the operation
	}
	lost, err := r.journal.RecentlyLost(ctx, journal.MaxLost)
	if err != nil {
		return nil, err //nolint:wrapcheck // the error names the operation
	}
	now, away := r.now(), map[string]time.Time{}
	for state, n := range cluster.CountStates(replicas, now) {
		known.Replicas[string(state)] = n
	}
	for _, l := range lost {
		if now.Sub(l.Seen) < journal.RememberLost && !slices.ContainsFunc(replicas, func(e journal.Replica) bool { return e.Name == l.Name }) {
			if away[l.Name] = l.Seen; len(away) <= journal.ShownLost {
				known.Lost[l.Name] = l.Seen
			}
		}
	}
	known.Expected = cmp.Or(cluster.Expected(replicas), len(replicas)+len(known.Lost))
	known.Configurations = len(cluster.GroupByConfig(replicas))
	return away, nil
}

// readJobs finds the jobs that are paused or late. It reads only the records of runs that may be slow.
func (r *clusterReader) readJobs(ctx context.Context, all []journal.JobInfo, known *metrics.Cluster) (late []jobCondition, err error) {
	jobs := slices.DeleteFunc(slices.Clone(all), func(info journal.JobInfo) bool { return !info.Enabled })
	requests := make([]election.InspectRequest, len(jobs))
	for i, info := range jobs {
		requests[i] = election.InspectRequest{Lock: election.JobLock(info.Name)}
	}
	paused, running := map[string]bool{}, map[string][]string{}
	for i, state := range r.elector.Inspect(ctx, requests) {
		if errors.Is(state.Err, election.ErrCorrupt) {
			continue // status warns of the job, and the others go on
		}
		if state.Err != nil {
			return nil, fmt.Errorf("inspect job %s: %w", jobs[i].Name, state.Err)
		}
		if state.Pause.On(state.Now) {
			paused[jobs[i].Name] = true
			known.Paused = append(known.Paused, jobs[i].Name)
		}
		for _, run := range state.Running {
			if mayBeSlow(jobs[i], run, state.Now) {
				running[jobs[i].Name] = append(running[jobs[i].Name], run.ID)
			}
		}
	}
	evidence, err := cluster.ReadEvidence(ctx, r.journal, jobs, running)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) { // the other facts are valid
		return nil, err //nolint:wrapcheck // the error names the operation
	}
	for name := range paused {
		e := evidence[name]
		e.Paused = true
		evidence[name] = e
	}
	for _, info := range jobs {
		for _, c := range cluster.ConditionsOf(r.config().Zones, jobs, info, evidence, r.now()) {
			late = append(late, jobCondition{info.Name, c})
			known.Late = append(known.Late, metrics.LateJob{Job: info.Name, Condition: c.Code})
		}
	}
	return late, nil
}

// mayBeSlow reports whether a run has lasted for long enough to be slow. The token of a run is the time of its grant in microseconds, or greater.
func mayBeSlow(info journal.JobInfo, run election.Run, now time.Time) bool {
	least := time.Minute
	if info.WarnAfterMS > 0 {
		least = min(least, time.Duration(info.WarnAfterMS)*time.Millisecond)
	}
	return now.Sub(time.UnixMicro(int64(run.Token))) >= least
}

func (r *clusterReader) readPools(ctx context.Context, pools map[string]config.Pool) (map[string]metrics.PoolUse, error) {
	list, use := slices.Sorted(maps.Keys(pools)), map[string]metrics.PoolUse{}
	for i, state := range r.elector.InspectPools(ctx, list) {
		if errors.Is(state.Err, election.ErrCorrupt) {
			continue // as a damaged job
		}
		if state.Err != nil {
			return nil, fmt.Errorf("inspect pool %s: %w", list[i], state.Err)
		}
		use[list[i]] = metrics.PoolUse{Slots: pools[list[i]].Slots, Held: len(state.Running)}
	}
	return use, nil
}

func (r *clusterReader) nextTicks(jobs []journal.JobInfo) map[string]metrics.NextTick {
	next := make(map[string]metrics.NextTick, len(jobs))
	for job, tick := range r.ticks.NextTicks(r.config().Zones, jobs, r.now()) {
		next[job] = metrics.NextTick(tick)
	}
	return next
}
