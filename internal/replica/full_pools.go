package replica

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
)

const (
	// lookAtPools is the interval at which the leader checks for full pools.
	lookAtPools = 15 * time.Second
	// fullFor is the time for which a pool must have been full, and its first waiter must have waited, before a warning is logged. Short waits are normal for jobs
	// that share a pool.
	fullFor = time.Minute
	// freeFor is the time for which a pool must not have been full before a new warning about it is logged.
	freeFor = 5 * time.Minute
)

// watchPools is a duty of the leader. It logs once per occurrence that a pool is full while runs wait for it. Without pools it sends nothing to Redis.
func watchPools(ctx context.Context, o *cluster.Operator, cfg func() *config.Config, now func() time.Time, log hclog.Logger) {
	watch := poolWatch{operator: o, now: now, log: log}
	repeatEvery(ctx, lookAtPools, func() {
		if pools := cfg().Pools; len(pools) > 0 {
			watch.checkPools(ctx, pools)
		}
	})
}

// A poolWatch stores which pools were full within the last minutes.
type poolWatch struct {
	operator *cluster.Operator
	now      func() time.Time // the clock of Redis
	log      hclog.Logger
	known    map[string]fullPool
}

// A fullPool is a pool that was full recently.
type fullPool struct {
	since  time.Time // time since which every check has found the pool full; zero if the last check did not
	seen   time.Time // time of the last check that found the pool full
	logged bool
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
	for _, p := range w.duePools(full, w.now()) {
		w.log.Warn("pool is full while others wait for a slot", "code", cluster.CodePoolFull, "pool", p.Name, "holder", p.HeldBy(), "waiters", p.Waiters,
			"remedy", p.Remedy(), "since", p.Waiting[0].Since.UTC().Format(time.RFC3339))
	}
}

// duePools returns the full pools for which a warning is due.
func (w *poolWatch) duePools(full []cluster.Pool, now time.Time) (list []cluster.Pool) {
	known := map[string]fullPool{}
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
		if waits := p.Waiting[0].Since; !is.logged && now.Sub(is.since) >= fullFor && waits != nil && now.Sub(*waits) >= fullFor {
			is.logged = true
			list = append(list, p)
		}
		known[p.Name] = is
	}
	w.known = known
	return list
}
