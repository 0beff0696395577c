package replica

import (
	"context"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// watchAgreement is a duty of the leader. Until ctx ends, it logs when replicas begin to disagree on the configuration, and when they agree again. Two checks
// in a row must find the same state, because replicas differ for a moment while a new configuration is rolled out.
func watchAgreement(ctx context.Context, p *peers, j *journal.Journal, log hclog.Logger) {
	var last, logged string // groups of replicas as text; "" if the replicas agree
	repeatEvery(ctx, cluster.RegisterEvery, func() {
		known := p.all.Load()
		if known == nil {
			return
		}
		c, now := cluster.GroupByConfig(known.replicas), ""
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
