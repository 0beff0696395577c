package replica

import (
	"context"
	"strings"

	"github.com/cronclave/cronclave/internal/operator"
)

// publishDigests keeps the digests of this replica's jobs in Redis, so that others can name the jobs that differ.
func (r *Replica) publishDigests(ctx context.Context) {
	cfg := r.cfg.Load()
	if err := r.journal.KeepDigests(ctx, cfg.Digest(), cfg.JobDigests(), registerTTL); err != nil {
		r.log.Debug("digests of jobs not written", "error", err)
	}
}

// compare logs that replicas disagree on the configuration, once for each change, until ctx ends. It logs only a disagreement that two looks have
// found: while a new configuration is rolled out replicas differ for a moment.
func (r *Replica) compare(ctx context.Context) {
	var last, logged string // "" for agreement
	every(ctx, operator.RegisterEvery, func() {
		known := r.peers.all.Load()
		if known == nil {
			return
		}
		c, now := operator.GroupByConfig(known.replicas), ""
		if len(c) > 1 {
			now = c.String()
		}
		settled := now == last
		last = now
		switch {
		case !settled || now == logged:
			return
		case now == "":
			r.log.Info("replicas agree on the configuration again", "code", "config_differs")
		default:
			where, err := c.Differences(ctx, r.journal)
			if err != nil && ctx.Err() != nil {
				return
			}
			r.log.Warn("replicas run different configurations", "code", "config_differs", "replicas", now, "differ", strings.Join(where, "; "))
		}
		logged = now
	})
}
