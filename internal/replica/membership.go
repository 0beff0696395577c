package replica

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
	"github.com/cronclave/cronclave/internal/redisconn"
)

const (
	registerTTL   = 3 * operator.RegisterEvery
	describeEvery = time.Minute
)

// membership keeps a replica registered, and its jobs described. Its other fields are set before [membership.run], to whose goroutine those of the last
// part belong.
type membership struct {
	journal *journal.Journal
	log     hclog.Logger
	peers   *peers
	entry   func() journal.Replica                 // what the replica says of itself
	config  func() *config.Config                  // that is in force
	sweep   func(context.Context, ...string) error // inspects all jobs
	now     func() time.Time                       // the server's clock
	edited  atomic.Bool                            // the cluster has not been sent the changed jobs
	news    chan struct{}                          // capacity 1: something about the entry has changed

	renewed    time.Time         // the entry, the last time
	dataLost   *journal.Interval // between which instants Redis has lost its data, the last time
	registered bool              // it has been, once
	forgotten  bool              // and was no more: announce all jobs to the server again
	canary     *journal.Canary
	described  time.Time // when the jobs were described to the cluster
	clock      clockWatch
	namesakes  namesakeWatch
}

// announce has the registration renewed at once.
func (m *membership) announce() {
	select {
	case m.news <- struct{}{}:
	default:
	}
}

// run keeps the replica in the registry until ctx ends, through the drain, and describes its jobs to the cluster.
func (m *membership) run(ctx context.Context) {
	m.canary = m.journal.Canary(m.peers.self)
	renew := time.NewTimer(0)
	defer renew.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-m.news:
			m.renew(ctx)
		case <-renew.C:
			m.renew(ctx)
			renew.Reset(operator.RegisterEvery)
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisconn.Timeout) // the drain has waited for the server enough
	defer cancel()
	if err := m.journal.Deregister(last, m.peers.self); err != nil {
		m.log.Debug("registration not removed; it expires by itself", "error", err)
	}
}

// renew renews the registration, and what else the cluster knows of this replica.
func (m *membership) renew(ctx context.Context) {
	entry := m.entry()
	entry.DataLost = m.dataLost
	known, err := m.journal.Register(ctx, entry, registerTTL)
	if err != nil {
		m.log.Debug("not registered", "error", err)
		m.forgotten = m.registered // the write may have been done, and then the next one finds its entry instead of the loss
		return
	}
	m.clock.look(operator.ClockOffsetOf(entry), m.log)
	m.publishDigests(ctx)
	m.meetPeers(ctx, entry)
	canary, err := m.canary.Look(ctx, registerTTL)
	if err != nil {
		m.log.Debug("a master does not answer; checking it for lost data later", "error", err)
	}
	if m.registered && (!known || canary == journal.CanaryMissing) {
		m.noteLoss(ctx, m.now())
	}
	m.reannounce(ctx, known && canary == journal.CanaryIntact)
	m.renewed = entry.Seen
	m.describe(ctx)
}

// noteLoss logs why the registration, or a canary, is missing from Redis. It expires by itself after a time in which this replica could not renew it; then
// the note of the format shows whether Redis has lost its data.
func (m *membership) noteLoss(ctx context.Context, now time.Time) {
	missing, err := m.journal.RestoreFormat(ctx)
	if err != nil {
		m.log.Debug("the format of the data is not restored", "error", err)
	}
	if expired := now.Sub(m.renewed) >= registerTTL-redisconn.Timeout; expired && !missing {
		m.log.Warn("registration expired, since this replica could not renew it in time; re-announcing all jobs", "since", m.renewed.UTC().Format(time.RFC3339))
		return
	}
	m.dataLost = &journal.Interval{From: m.renewed, To: now}
	m.log.Warn("Redis lost its data (FLUSHALL, a restart without its data, or a failover); this replica restores the locks that it knows, and the history "+
		"is gone; find the cause, and let Redis write to its disk", "code", operator.CodeDataLost, "since", m.renewed.UTC().Format(time.RFC3339))
	m.announce()
}

// publishDigests keeps the digests of this replica's jobs in Redis, so that others can name the jobs that differ.
func (m *membership) publishDigests(ctx context.Context) {
	cfg := m.config()
	if err := m.journal.KeepDigests(ctx, cfg.Digest(), cfg.JobDigests(), registerTTL); err != nil {
		m.log.Debug("digests of jobs not written", "error", err)
	}
}

// reannounce repeats this replica's knowledge of all jobs to a server that has lost the replica's entry: each inspection of a job carries it. Without
// that the server would get it only when a job is next due, and until then a replica without that knowledge could be granted the lock.
func (m *membership) reannounce(ctx context.Context, known bool) {
	if m.registered && !known {
		m.forgotten, m.described = true, time.Time{}
	}
	m.registered = true
	if !m.forgotten {
		return
	}
	if err := m.sweep(ctx); err != nil {
		m.log.Debug("jobs not re-announced yet", "error", err)
		return
	}
	m.forgotten = false
}

// describe writes the descriptions of the jobs to the cluster from time to time.
func (m *membership) describe(ctx context.Context) {
	if time.Since(m.described) < describeEvery && !m.edited.Swap(false) {
		return
	}
	if err := m.journal.DescribeJobs(ctx, DescribeJobs(m.config(), m.now())); err != nil {
		m.described = time.Time{}
		m.log.Debug("jobs not described", "error", err)
		return
	}
	m.described = time.Now()
}

// meetPeers reads the list of replicas. After an error it keeps the last one.
func (m *membership) meetPeers(ctx context.Context, self journal.Replica) {
	replicas, err := m.journal.Replicas(ctx)
	if err != nil {
		m.log.Debug("cannot read the other replicas", "error", err)
		return
	}
	m.namesakes.look(namesakes(replicas, self), func(o journal.Replica) {
		m.log.Warn("duplicate replica name; give each replica its own name with --replica", "code", "same_name", "other_id", o.ID, "other_started", o.Started)
	})
	m.peers.met(replicas)
}
