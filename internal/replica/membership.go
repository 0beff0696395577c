package replica

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/scheduler"
)

const (
	registerTTL   = 3 * operator.RegisterEvery
	describeEvery = time.Minute
)

// membership is a replica's memory of its own registration. It belongs to one goroutine.
type membership struct {
	registered bool // it has been, once
	forgotten  bool // and was no more: announce all jobs to the server again
	canary     *journal.Canary
	described  time.Time // when the jobs were described to the cluster
	clock      clockWatch
	namesakes  namesakeWatch
}

// register keeps the replica in the registry until ctx ends, through the drain, and describes its jobs to the cluster.
func (r *Replica) register(ctx context.Context) {
	m := membership{canary: r.journal.Canary(r.id)}
	every(ctx, operator.RegisterEvery, func() {
		entry := r.entry()
		known, err := r.journal.Register(ctx, entry, registerTTL)
		if err != nil {
			r.log.Debug("not registered", "error", err)
			m.forgotten = m.registered // the write may have been done, and then the next one finds its entry instead of the loss
			return
		}
		m.clock.look(operator.ClockOffsetOf(entry), r.log)
		r.publishDigests(ctx)
		r.meetPeers(ctx, &m)
		intact, err := m.canary.Look(ctx, registerTTL)
		if err != nil {
			r.log.Debug("a master does not answer; checking it for lost data later", "error", err)
		}
		r.reannounce(ctx, &m, known && intact)
		r.describe(ctx, &m)
	})
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisconn.Timeout) // the drain has waited for the server enough
	defer cancel()
	if err := r.journal.Deregister(last, r.id); err != nil {
		r.log.Debug("registration not removed; it expires by itself", "error", err)
	}
}

// reannounce repeats this replica's knowledge of all jobs to a server that has lost the replica's entry: each inspection of a job carries it. Without
// that the server would get it only when a job is next due, and until then a replica without that knowledge could be granted the lock.
func (r *Replica) reannounce(ctx context.Context, m *membership, known bool) {
	if m.registered && !known {
		r.log.Warn("registration missing from Redis, which may have lost data; re-announcing all jobs")
		m.forgotten, m.described = true, time.Time{}
	}
	m.registered = true
	if !m.forgotten {
		return
	}
	if err := r.scheduler.Sweep(ctx); err != nil {
		r.log.Debug("jobs not re-announced yet", "error", err)
		return
	}
	m.forgotten = false
}

// describe writes the descriptions of the jobs to the cluster from time to time.
func (r *Replica) describe(ctx context.Context, m *membership) {
	if time.Since(m.described) < describeEvery && !r.edited.Swap(false) {
		return
	}
	if err := r.journal.DescribeJobs(ctx, DescribeJobs(r.cfg.Load(), r.now())); err != nil {
		m.described = time.Time{}
		r.log.Debug("jobs not described", "error", err)
		return
	}
	m.described = time.Now()
}

// peers is the replicas that were alive when last looked at.
type peers struct {
	self string
	all  atomic.Pointer[acquaintance]
}

type acquaintance struct {
	replicas []journal.Replica
	ids      []string // of all replicas: the set for most jobs
}

// get returns the ids of those that have these labels.
func (p *peers) get(where scheduler.Labels) (self string, ids []string) {
	known := p.all.Load()
	if known == nil {
		return p.self, nil
	}
	if len(where) == 0 {
		return p.self, known.ids
	}
	for _, r := range known.replicas {
		if scheduler.Labels(r.Labels).Include(where) {
			ids = append(ids, r.ID)
		}
	}
	return p.self, ids
}

// meetPeers reads the list of replicas. After an error it keeps the last one.
func (r *Replica) meetPeers(ctx context.Context, m *membership) {
	replicas, err := r.journal.Replicas(ctx)
	if err != nil {
		r.log.Debug("cannot read the other replicas", "error", err)
		return
	}
	m.namesakes.look(r.ofThisName(replicas), func(o journal.Replica) {
		r.log.Warn("duplicate replica name; give each replica its own name with --replica", "code", "same_name", "other_id", o.ID, "other_started", o.Started)
	})
	ids := make([]string, len(replicas))
	for i, other := range replicas {
		ids[i] = other.ID
	}
	r.peers.all.Store(&acquaintance{replicas, ids})
}

// now is the server's clock as far as it is known.
func (r *Replica) now() time.Time {
	if now, known := r.locks.Engine().EstimatedTime(); known {
		return now
	}
	return r.clock()
}

func (r *Replica) entry() journal.Replica {
	now := r.now()
	entry := journal.Replica{
		ID: r.id, Name: r.name, Process: proc.ID(), Version: r.version, Started: r.started, Seen: now, ConfigDigest: r.cfg.Load().Digest(),
		ClockOffsetMS: r.clock().Sub(now).Milliseconds(), ClockErrorMS: r.locks.Engine().EstimateError().Milliseconds(), Running: r.scheduler.Running(),
		Labels: r.cfg.Load().Replica.Labels,
	}
	if refused := r.refused.Load(); refused != nil {
		entry.Refused = *refused
	}
	entry.Unable = operator.FirstLine(r.scheduler.Unable(), mostUnable)
	if what := r.heartbeatError.Load(); what != nil {
		entry.Heartbeat = *what
	}
	return entry
}

// mostUnable bounds the text of the reason why a replica claims nothing.
const mostUnable = 200

// every calls f at once, and then again and again until ctx ends.
func every(ctx context.Context, period time.Duration, f func()) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			f()
			timer.Reset(period)
		}
	}
}
