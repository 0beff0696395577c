package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler"
)

const (
	registerEvery = 5 * time.Second
	registerTTL   = 3 * registerEvery
	describeEvery = time.Minute
)

// membership is what a replica remembers of its own registration. It belongs to one goroutine.
type membership struct {
	registered bool // it has been, once
	forgotten  bool // and was no more: the server is to be told what is known of all jobs
	canary     *journal.Canary
	described  time.Time // when the cluster was told what the jobs are
	clock      clockWatch
	namesakes  namesakeWatch
}

// register keeps the replica in the registry until ctx ends, through the drain, and tells the cluster what its jobs are.
func (r *replica) register(ctx context.Context) {
	m := membership{canary: r.journal.Canary(r.id)}
	every(ctx, registerEvery, func() {
		entry := r.entry()
		known, err := r.journal.Register(ctx, entry, registerTTL)
		if err != nil {
			r.log.Debug("not registered", "error", err)
			m.forgotten = m.registered // it may have been done, and then the next time finds what this one wrote
			return
		}
		m.clock.look(offsetOf(entry), r.log)
		r.tellDigests(ctx)
		r.meetPeers(ctx, &m)
		intact, err := m.canary.Look(ctx, registerTTL)
		if err != nil {
			r.log.Debug("not each node answers; what it has forgotten it is told later", "error", err)
		}
		r.remind(ctx, &m, known && intact)
		r.describe(ctx, &m)
	})
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisTimeout) // the drain has waited for the server enough
	defer cancel()
	if err := r.journal.Deregister(last, r.id); err != nil {
		r.log.Debug("not deregistered; the entry ends by itself", "error", err)
	}
}

// remind tells a server that has forgotten this replica what it knows of all jobs: each look at one carries that. Else the
// server would hear of a job when it is next due, and until then somebody who never knew its lock could have it.
func (r *replica) remind(ctx context.Context, m *membership, known bool) {
	if m.registered && !known {
		r.log.Warn("registration missing from Redis, which may have lost data; re-announcing all jobs")
		m.forgotten, m.described = true, time.Time{}
	}
	m.registered = true
	if !m.forgotten {
		return
	}
	if err := r.scheduler.Sweep(ctx); err != nil {
		r.log.Debug("what is known of the jobs is not told yet", "error", err)
		return
	}
	m.forgotten = false
}

// describe tells the cluster from time to time what the jobs are.
func (r *replica) describe(ctx context.Context, m *membership) {
	if time.Since(m.described) < describeEvery && !r.edited.Swap(false) {
		return
	}
	if err := r.journal.DescribeJobs(ctx, describe(r.cfg.Load(), r.now())); err != nil {
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
	ids      []string // of all: what most jobs ask for
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

// meetPeers looks who is there. Who can't tell keeps to those it has met.
func (r *replica) meetPeers(ctx context.Context, m *membership) {
	replicas, err := r.journal.Replicas(ctx)
	if err != nil {
		r.log.Debug("the other replicas are not known", "error", err)
		return
	}
	m.namesakes.look(r.ofThisName(replicas), func(o journal.Replica) {
		r.log.Warn("another replica has the same name; give each a name of its own with --replica", "code", "same_name", "other_id", o.ID, "other_started", o.Started)
	})
	ids := make([]string, len(replicas))
	for i, other := range replicas {
		ids[i] = other.ID
	}
	r.peers.all.Store(&acquaintance{replicas, ids})
}

// now is the server's clock as far as it is known.
func (r *replica) now() time.Time {
	if now, known := r.locks.EstimatedTime(); known {
		return now
	}
	return r.clock()
}

func (r *replica) entry() journal.Replica {
	now := r.now()
	entry := journal.Replica{
		ID: r.id, Name: r.name, Process: r.process, Version: version, Started: r.started, Seen: now, ConfigDigest: r.cfg.Load().Digest(),
		ClockOffsetMS: r.clock().Sub(now).Milliseconds(), ClockErrorMS: r.locks.EstimateError().Milliseconds(), Running: r.scheduler.Running(),
		Labels: r.cfg.Load().Replica.Labels,
	}
	if refused := r.refused.Load(); refused != nil {
		entry.Refused = *refused
	}
	entry.Unable = shortened(r.scheduler.Unable(), mostUnable)
	if what := r.heartless.Load(); what != nil {
		entry.Heartbeat = *what
	}
	return entry
}

// mostUnable is how much is told of why a replica claims nothing.
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
