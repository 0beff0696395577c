package main

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
)

const (
	registerEvery = 5 * time.Second
	registerTTL   = 3 * registerEvery
	describeEvery = time.Minute
	sweepEvery    = time.Minute
)

// register keeps the replica in the registry until ctx ends, through the drain, and tells the cluster what its jobs are.
func (r *replica) register(ctx context.Context) {
	var described time.Time
	every(ctx, registerEvery, func() {
		if err := r.journal.Register(ctx, r.entry(), registerTTL); err != nil {
			r.log.Debug("not registered", "error", err)
			return
		}
		if time.Since(described) < describeEvery {
			return
		}
		if err := r.journal.DescribeJobs(ctx, describe(r.cfg, r.now())); err != nil {
			r.log.Debug("jobs not described", "error", err)
			return
		}
		described = time.Now()
	})
	if err := r.journal.Deregister(context.WithoutCancel(ctx), r.id); err != nil {
		r.log.Debug("not deregistered; the entry ends by itself", "error", err)
	}
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
	return journal.Replica{
		ID: r.id, Name: r.name, Version: version, Started: r.started, Seen: now, ConfigDigest: r.cfg.Digest(),
		ClockOffsetMS: r.clock().Sub(now).Milliseconds(), Running: r.scheduler.Running(),
	}
}

// lead is the housekeeping of the cluster's leader.
func (r *replica) lead(ctx context.Context, term *election.Term) {
	r.log.Info("leader of the cluster's housekeeping", "token", term.Token())
	every(ctx, sweepEvery, func() {
		if err := r.scheduler.Sweep(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("housekeeping: look at all jobs", "error", err)
		}
		if _, err := r.journal.ForgetJobs(ctx, r.now().Add(-3*describeEvery)); err != nil && ctx.Err() == nil {
			r.log.Warn("housekeeping: forget jobs that no replica has", "error", err)
		}
	})
}

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
