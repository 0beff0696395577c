package scheduler_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler"
)

// TestRedisDiesBetweenGrantAndStart: a run whose grant was heard starts, whatever becomes of Redis before that. Its record follows, and no replica
// runs its tick again, also where Redis has forgotten the grant.
// Promise: P1
func TestRedisDiesBetweenGrantAndStart(t *testing.T) {
	for _, tc := range []struct {
		name    string
		lasts   time.Duration
		forgets bool
		away    time.Duration
		told    string
	}{
		{"a run that ends in time", 2 * time.Second, false, 20 * time.Second, "ok"},
		{"a run that would outlive its lease", time.Hour, false, 20 * time.Second, "lost"},
		{"a run that ends in time, and Redis forgets", 2 * time.Second, true, 20 * time.Second, "ok"},
		{"a run that would outlive its lease, and Redis forgets", time.Hour, true, 20 * time.Second, "lost"},
		{"Redis forgets, and is back before the lease ends", 12 * time.Second, true, time.Second, "ok"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				job := c.job("j", "*/30 * * * * *", 0, lease(7*time.Second), func(j *scheduler.Job) {
					j.Runner = scheduler.Func(func(ctx context.Context, run *scheduler.Run) error {
						seen, lasts := c.began(run), time.Second
						if c.second(run.Tick) == 60 {
							lasts = tc.lasts
						}
						select {
						case <-time.After(lasts):
						case <-ctx.Done():
						}
						c.ended(seen, context.Cause(ctx))
						return context.Cause(ctx)
					})
				})
				var holder *replica
				var died atomic.Bool
				holder = c.replica("holder", []scheduler.Job{job}, c.afterGrant(60, sync.OnceFunc(func() {
					died.Store(true)
					holder.wire.silence()
					if tc.forgets {
						c.forget()
					}
				})))
				holder.run()
				other := c.join("other", []scheduler.Job{job})
				c.at(59 * time.Second)
				other.wire.silence() // the message of the grant does not arrive
				c.at(60*time.Second + tc.away)
				want(t, "Redis died after the grant", died.Load(), true)
				for _, r := range c.replicas {
					r.wire.restore()
				}
				pass(5 * time.Second) // until each has registered, and so noticed the loss
				for _, r := range c.replicas {
					err := r.Sweep(context.Background())
					for tries := 1; err != nil && tries < 5; tries++ { // by connections of before the loss
						err = r.Sweep(context.Background())
					}
					want(t, "error of a sweep", err, error(nil))
				}
				c.at(100 * time.Second)
				want(t, "told", c.told("j"), map[int][]string{30: {"ok"}, 60: {tc.told}, 90: {"ok"}})
				want(t, "ran", c.ticks("j"), []int{30, 60, 90})
				if began := c.runs("j")[1].from.Sub(c.start); began > 60500*time.Millisecond {
					t.Errorf("the run began at %v", began)
				}
				c.checkRuns("j", 1, 1)
			})
		})
	}
}

// afterGrant has a replica do something between hearing that it runs a tick and the start of the run.
func (c *cluster) afterGrant(tick int, f func()) func(*scheduler.Config) {
	return func(cfg *scheduler.Config) { cfg.Claimer = grantHook{cfg.Claimer, c, tick, f} }
}

type grantHook struct {
	scheduler.Claimer
	cluster *cluster
	tick    int
	f       func()
}

func (h grantHook) Claim(ctx context.Context, claims []election.Claim) []election.Result {
	results := h.Claimer.Claim(ctx, claims)
	if slices.ContainsFunc(results, func(r election.Result) bool { return r.Verdict == election.Granted }) &&
		slices.ContainsFunc(claims, func(claim election.Claim) bool { return h.cluster.second(claim.Tick) == h.tick }) {
		h.f()
	}
	return results
}

// forget has Redis lose its data.
func (c *cluster) forget() {
	c.t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: c.server.Addr(), Dialer: c.server.Dial, ContextTimeoutEnabled: true})
	defer rdb.Close()
	if err := rdb.FlushAll(context.Background()).Err(); err != nil {
		c.t.Error(err)
	}
}
