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

	registered bool // it has been, once
	forgotten  bool // and was no more: announce all jobs to the server again
	canary     *journal.Canary
	described  time.Time // when the jobs were described to the cluster
	clock      clockWatch
	namesakes  namesakeWatch
}

// run keeps the replica in the registry until ctx ends, through the drain, and describes its jobs to the cluster.
func (m *membership) run(ctx context.Context) {
	m.canary = m.journal.Canary(m.peers.self)
	every(ctx, operator.RegisterEvery, func() {
		entry := m.entry()
		known, err := m.journal.Register(ctx, entry, registerTTL)
		if err != nil {
			m.log.Debug("not registered", "error", err)
			m.forgotten = m.registered // the write may have been done, and then the next one finds its entry instead of the loss
			return
		}
		m.clock.look(operator.ClockOffsetOf(entry), m.log)
		m.publishDigests(ctx)
		m.meetPeers(ctx, entry)
		intact, err := m.canary.Look(ctx, registerTTL)
		if err != nil {
			m.log.Debug("a master does not answer; checking it for lost data later", "error", err)
		}
		m.reannounce(ctx, known && intact)
		m.describe(ctx)
	})
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisconn.Timeout) // the drain has waited for the server enough
	defer cancel()
	if err := m.journal.Deregister(last, m.peers.self); err != nil {
		m.log.Debug("registration not removed; it expires by itself", "error", err)
	}
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
		m.log.Warn("registration missing from Redis, which may have lost data; re-announcing all jobs")
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
