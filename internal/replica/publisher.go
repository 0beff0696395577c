package replica

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
)

const (
	describeEvery = time.Minute
	// publishAgainAfter is the pause after a failed write of the configuration.
	publishAgainAfter = time.Minute
)

// A publisher keeps the descriptions and the settings of this replica's jobs in Redis, for readers without its configuration. The leader removes jobs that no
// replica has described for some minutes.
type publisher struct {
	journal *journal.Journal
	log     hclog.Logger
	version string                // version of the program
	config  func() *config.Config // the configuration in use
	now     func() time.Time      // the clock of Redis
	news    notice                // Redis may lack the current descriptions of the jobs

	described   time.Time // time of the last description of the jobs
	unpublished time.Time // time of the last failed write of the configuration
}

// describeSoon makes run describe the jobs at once.
func (p *publisher) describeSoon() { p.news.give() }

// run publishes until ctx ends.
func (p *publisher) run(ctx context.Context) {
	renew := time.NewTicker(cluster.RegisterEvery)
	defer renew.Stop()
	for ctx.Err() == nil {
		p.publishDue(ctx)
		select {
		case <-ctx.Done():
		case <-renew.C:
		case <-p.news:
			p.described = time.Time{}
		}
	}
}

// publishDue writes everything that is due. Its time limit ends before the published configuration expires.
func (p *publisher) publishDue(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, cluster.RegisterEvery)
	defer cancel()
	p.describeJobs(ctx)
	p.publishConfiguration(ctx) // last, because it may take long
}

// describeJobs writes the descriptions of the jobs once per describeEvery.
func (p *publisher) describeJobs(ctx context.Context) {
	if time.Since(p.described) < describeEvery {
		return
	}
	if err := p.journal.DescribeJobs(ctx, DescribeJobs(p.config(), p.now())); err != nil {
		p.log.Debug("jobs not described", "error", err)
		return
	}
	p.described = time.Now()
}

// publishConfiguration keeps the digests and the settings of this replica's jobs in Redis. From them, readers find the jobs that differ between replicas, and
// the differences. After a failed write it writes nothing for publishAgainAfter, so that a write that exceeds its time-out is not repeated all the time. In
// that time it still renews what is published.
func (p *publisher) publishConfiguration(ctx context.Context) {
	cfg, written := p.config(), false
	write := func() journal.Configuration {
		written = true
		return configurationOf(cfg)
	}
	if time.Since(p.unpublished) < publishAgainAfter {
		write = nil
	}
	err := p.journal.KeepConfiguration(ctx, journal.ConfigID{Digest: cfg.Digest(), Version: p.version}, registerTTL, write)
	switch {
	case err == nil, errors.Is(ctx.Err(), context.Canceled): // a replica that is ending publishes nothing
	case errors.Is(err, journal.ErrCorrupt):
		p.log.Debug("the published configuration was damaged", "error", err)
	case !written:
		p.log.Debug("the published configuration is not renewed; trying again at the next renewal", "error", err)
	default:
		p.unpublished = time.Now()
		p.log.Warn("configuration not published; until it is, others do not know how this replica's jobs differ", "error", err)
	}
}
