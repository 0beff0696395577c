package replica

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

const (
	sweepEvery = time.Minute
	// forgetAfter is the time for which all replicas must have lacked a job, and its lock must have been unused, before the lock is removed. A job that returns
	// earlier finds its ledger. A job that returns later begins with a new one. In both cases no tick runs again.
	forgetAfter = 24 * time.Hour
)

// leadCluster performs the duties of the cluster's leader until its term ends.
func (r *Replica) leadCluster(ctx context.Context, term *election.Term) {
	r.log.Info("leadership won", "token", term.Token())
	r.leads.Store(true)
	defer r.leads.Store(false)
	elector, err := election.New(election.Config{Locks: r.locks})
	if err != nil {
		r.log.Error("housekeeping cannot start", "error", err) // cannot happen: the locks exist
		return
	}
	view, err := cluster.New(cluster.Config{Conn: r.redis, Journal: r.journal, Namespace: r.cfg.Load().Namespace, Zones: func() *cronspec.Zones { return r.cfg.Load().Zones }})
	if err != nil {
		r.log.Error("housekeeping cannot start", "error", err) // cannot happen either
		return
	}
	defer func() { _ = view.Close() }() // it only waits for background work
	h := housekeeping{journal: r.journal, elector: elector, sweep: r.scheduler.Sweep, now: r.serverNow, log: r.log}
	var duties sync.WaitGroup
	beats := heartbeat{client: newBeatClient(), version: r.version, log: r.log, config: func() config.Heartbeat { return r.cfg.Load().Heartbeat },
		fault: func(what string) { r.heartbeatError.Store(&what) }}
	duties.Go(func() { beats.run(ctx) })
	duties.Go(func() { watchAgreement(ctx, &r.peers, r.journal, r.log) })
	duties.Go(func() { watchReplicas(ctx, r.journal, r.log) })
	duties.Go(func() { watchPools(ctx, view, r.cfg.Load, r.serverNow, r.log) })
	r.monitor.recalled.Store(false)
	duties.Go(func() {
		r.monitor.watchCluster(ctx, clusterReader{journal: r.journal, elector: elector, config: r.cfg.Load, now: r.serverNow})
	})
	repeatEvery(ctx, sweepEvery, func() { h.maintainData(ctx, disabledJobs(r.cfg.Load())) })
	duties.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, election.ErrEndangered) || term.Context().Err() != nil {
		r.log.Warn("leadership lost", "token", term.Token(), "error", cause)
	}
}

// disabledJobs returns the names of the jobs that are not enabled.
func disabledJobs(cfg *config.Config) (names []string) {
	for i := range cfg.Jobs {
		if !cfg.Jobs[i].Enabled {
			names = append(names, cfg.Jobs[i].Name)
		}
	}
	return names
}

// housekeeping maintains the data of the cluster. Only the leader runs it.
type housekeeping struct {
	journal *journal.Journal
	elector *election.Elector
	sweep   func(ctx context.Context, idle ...string) error
	now     func() time.Time // the clock of Redis
	log     hclog.Logger
}

// maintainData records runs whose holder died while no other replica was up, including runs of jobs that no replica has any more. It removes the locks of such
// jobs after forgetAfter.
func (h *housekeeping) maintainData(ctx context.Context, disabled []string) {
	warn := func(what string, err error) {
		if err != nil && ctx.Err() == nil {
			h.log.Warn("housekeeping: "+what, "error", err)
		}
	}
	_, err := h.journal.ForgetJobs(ctx, h.now().Add(-3*describeEvery))
	warn("remove what is left of jobs that no replica has", err)
	gone, err := h.journal.GoneJobs(ctx)
	warn("look for jobs that no replica has", err)
	idle := slices.Clone(disabled)
	for name := range gone {
		idle = append(idle, name)
	}
	warn("look at all jobs", h.sweep(ctx, idle...))
	warn("remove the locks of jobs that no replica has", h.removeGoneLocks(ctx, gone))
}

// removeGoneLocks removes the locks of jobs that no replica has had for forgetAfter. Their history expires by itself.
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
	return errors.Join(err, h.journal.DropGone(ctx, removed...))
}
