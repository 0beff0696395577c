package replica

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
)

const (
	describeEvery = time.Minute
	// publishAgainAfter is the pause after a configuration that could not be written.
	publishAgainAfter = time.Minute
)

// publisher keeps the descriptions and the settings of this replica's jobs in Redis, for readers without its configuration. The leader removes a job that is not
// described for minutes.
type publisher struct {
	journal *journal.Journal
	log     hclog.Logger
	version string                // of the program
	config  func() *config.Config // that is in force
	now     func() time.Time      // the server's clock
	news    notice                // the cluster may lack the descriptions of the jobs as they are now

	described   time.Time // when the jobs were described to the cluster
	unpublished time.Time // when the configuration could not be written, the last time
}

// outdate has the jobs described at once.
func (p *publisher) outdate() { p.news.give() }

// run publishes until ctx ends.
func (p *publisher) run(ctx context.Context) {
	renew := time.NewTicker(operator.RegisterEvery)
	defer renew.Stop()
	for ctx.Err() == nil {
		p.publish(ctx)
		select {
		case <-ctx.Done():
		case <-renew.C:
		case <-p.news:
			p.described = time.Time{}
		}
	}
}

// publish ends before the published configuration expires.
func (p *publisher) publish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, operator.RegisterEvery)
	defer cancel()
	p.describe(ctx)
	p.publishConfiguration(ctx) // the last, as it may take long
}

// describe writes the descriptions of the jobs to the cluster from time to time.
func (p *publisher) describe(ctx context.Context) {
	if time.Since(p.described) < describeEvery {
		return
	}
	if err := p.journal.DescribeJobs(ctx, DescribeJobs(p.config(), p.now())); err != nil {
		p.log.Debug("jobs not described", "error", err)
		return
	}
	p.described = time.Now()
}

// publishConfiguration keeps the digests and the settings of this replica's jobs in Redis, so that others can name the jobs that differ, and show how.
// After a failed write it writes nothing for a while: writes that take longer than the time-out would be begun again and again. It keeps the published part,
// since that expires.
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
	case err == nil, errors.Is(ctx.Err(), context.Canceled): // a replica that ends has nothing to publish any more
	case errors.Is(err, journal.ErrCorrupt):
		p.log.Debug("the published configuration was damaged", "error", err)
	case !written:
		p.log.Debug("the published configuration is not renewed; trying again at the next renewal", "error", err)
	default:
		p.unpublished = time.Now()
		p.log.Warn("configuration not published; until it is, others do not know how this replica's jobs differ", "error", err)
	}
}
