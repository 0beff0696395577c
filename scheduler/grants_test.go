package scheduler_test

import (
	"context"
	"fmt"
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
		slices.ContainsFunc(claims, func(claim election.Claim) bool { return claim.Tick != nil && h.cluster.second(claim.Tick.At) == h.tick }) {
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

// registered gives a replica the registry of the cluster: those that have died are gone, a while later.
func (c *cluster) registered(cfg *scheduler.Config) {
	c.ranked(cfg)
	cfg.Gone = func(identity string) bool {
		i := slices.IndexFunc(c.replicas, func(r *replica) bool { return r.name == identity })
		c.replicas[i].mu.Lock()
		defer c.replicas[i].mu.Unlock()
		return c.replicas[i].dead
	}
}

// grantUnheard has a replica claim the tick at second 10, and cuts its link after the script was executed and before the reply came. A second replica joins.
func (c *cluster) grantUnheard(jobs ...scheduler.Job) (claimant, other *replica) {
	c.t.Helper()
	jobs = append(jobs, c.job("warm", "5 0 0 * * *", 0)) // has the script of claims loaded
	claimant = c.join("claimant", jobs, c.registered)
	c.at(9 * time.Second)
	claimant.wire.plan(fault{kind: noReply})
	c.at(10500 * time.Millisecond)
	want(c.t, "faults that came true", claimant.wire.count(), 1)
	claimant.wire.silence()
	other = c.join("other", jobs, c.registered)
	c.at(11 * time.Second)
	held := other.state(jobs[0].Name).Running
	if len(held) == 0 || held[0].Holder != "claimant" || slices.ContainsFunc(c.runs(jobs[0].Name), func(r ran) bool { return r.Replica == "claimant" }) {
		c.t.Fatalf("running %+v, ran %+v", held, c.runs(jobs[0].Name))
	}
	return claimant, other
}

// unheardOf is the fate of a tick whose grant was not heard.
type unheardOf struct {
	name  string
	edits []edit
	then  func(c *cluster, claimant, other *replica) // from 11s on; the lease ends at 13s
	told  []string                                   // in the end
	runs  int
	by    string // the replica of the last run
}

var reconnects = func(c *cluster, claimant, _ *replica) {
	c.at(20 * time.Second)
	want(c.t, "told while the claimant may come back", c.told("j")[10], nil)
	claimant.wire.restore()
}

// A grant of which its claimant hears only after the lease is withdrawn, and its tick is claimed anew, while it may start and the claimant lives. Others
// record it as abandoned only when the claimant is gone, or the start deadline has passed.
// Promise: P5, P6
func TestUnheardGrant(t *testing.T) {
	for _, tc := range []unheardOf{
		{"cut for longer than the lease", nil, reconnects, []string{"ok"}, 1, ""},
		{"queue", []edit{func(j *scheduler.Job) { j.Overlap = scheduler.OverlapQueue }}, reconnects, []string{"ok"}, 1, ""},
		{"replace", []edit{func(j *scheduler.Job) { j.Overlap = scheduler.OverlapReplace }}, reconnects, []string{"ok"}, 1, ""},
		{"parallel", []edit{func(j *scheduler.Job) { j.Parallel = 3 }}, reconnects, []string{"ok"}, 1, ""},
		{"each of two shares", []edit{func(j *scheduler.Job) { j.Parallel, j.PerTick, j.PerReplica = 2, 2, 1 }}, func(c *cluster, claimant, _ *replica) {
			c.at(20 * time.Second)
			want(c.t, "told while the claimant may come back", c.told("j")[10], []string{"ok"})
			claimant.wire.restore()
		}, []string{"ok", "ok"}, 2, ""},
		{"the claimant dies", nil, func(c *cluster, claimant, _ *replica) { c.at(12 * time.Second); claimant.die() }, []string{"abandoned"}, 0, ""},
		{"the start deadline passes", nil, func(c *cluster, claimant, _ *replica) {
			c.at(49 * time.Second)
			want(c.t, "told before the deadline", c.told("j")[10], nil)
			c.at(53 * time.Second)
			claimant.wire.restore()
		}, []string{"abandoned"}, 0, ""},
		{"a recovery is first", []edit{recovers(1)}, func(c *cluster, claimant, _ *replica) {
			c.at(20 * time.Second)
			claimant.wire.restore()
		}, []string{"abandoned", "ok"}, 1, "other"},
		{"frozen after the withdrawal", nil, func(c *cluster, claimant, _ *replica) {
			c.at(20 * time.Second)
			claimant.withdraws = func() {
				claimant.wire.plan(fault{kind: noReply})
				time.AfterFunc(100*time.Millisecond, claimant.wire.silence)
			}
			claimant.wire.restore()
		}, []string{"ok"}, 1, "other"},
		{"the withdrawal's answer is lost", nil, func(c *cluster, claimant, _ *replica) {
			c.at(20 * time.Second)
			claimant.withdraws = func() { claimant.wire.plan(fault{kind: noReply}) }
			claimant.wire.restore()
		}, []string{"ok"}, 1, ""},
		{"paused meanwhile", nil, func(c *cluster, claimant, other *replica) {
			c.at(15 * time.Second)
			operator{c}.pause(0)
			c.at(20 * time.Second)
			claimant.wire.restore()
		}, []string{"skipped paused"}, 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				job := c.job("j", "10 0 0 * * *", time.Second, append([]edit{lease(3 * time.Second), startDeadline(40 * time.Second)}, tc.edits...)...)
				claimant, other := c.grantUnheard(job)
				tc.then(c, claimant, other)
				c.at(2 * time.Minute)
				want(t, "told", c.told("j")[10], tc.told)
				runs := c.runs("j")
				want(t, "runs", len(runs), tc.runs)
				if tc.by != "" && len(runs) > 0 && runs[len(runs)-1].Replica != tc.by {
					t.Errorf("%s ran it", runs[len(runs)-1].Replica)
				}
				st := other.state("j")
				want(t, "rows and orphans that are left", len(st.Running)+len(st.Orphans), 0)
				c.checkWithdrawn(claimant, tc.edits == nil && tc.runs > 0)
			})
		})
	}
}

// checkWithdrawn demands that no run has the id of the claim that was withdrawn, and that its token is greater.
func (c *cluster) checkWithdrawn(claimant *replica, ran bool) {
	c.t.Helper()
	first := claimant.claims(c.start.Add(10 * time.Second))[0]
	for _, r := range c.runs("j") {
		if r.ID == first.ID || r.Token <= first.when.UnixMicro() {
			c.t.Errorf("run %s with token %d, after claim %s at %d", r.ID, r.Token, first.ID, first.when.UnixMicro())
		}
	}
	if _, told := c.words("j")[first.ID]; ran && told {
		c.t.Errorf("a record of claim %s, which never ran", first.ID)
	}
}

// A job after the one whose grant was not heard of waits for it, and runs once.
// Promise: P5
func TestUnheardGrantOfAChain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		first := c.job("j", "10 0 0 * * *", time.Second, lease(3*time.Second), startDeadline(40*time.Second))
		next := c.job("k", "", time.Second, func(j *scheduler.Job) { j.Schedule, j.After = nil, []string{"j"} })
		claimant, _ := c.grantUnheard(first, next)
		c.at(20 * time.Second)
		claimant.wire.restore()
		c.at(2 * time.Minute)
		want(t, "told", fmt.Sprint(c.told("j")[10], c.told("k")[10]), "[ok] [ok]")
		want(t, "runs", fmt.Sprint(len(c.runs("j")), len(c.runs("k"))), "1 1")
	})
}

// A replica that drains while it withdraws leaves the tick to the others.
// Promise: P5
func TestUnheardGrantOfAReplicaThatLeaves(t *testing.T) {
	inCluster(t, func(c *cluster) {
		job := c.job("j", "10 0 0 * * *", time.Second, lease(3*time.Second), startDeadline(40*time.Second))
		claimant, _ := c.grantUnheard(job)
		c.at(20 * time.Second)
		claimant.wire.restore()
		claimant.stop()
		c.at(2 * time.Minute)
		want(t, "told", c.told("j")[10], []string{"ok"})
		want(t, "runs it", c.runs("j")[0].Replica, "other")
	})
}

// AwaitWithdrawal has the first withdrawal meet what the test has planned for it.
func (s spy) AwaitWithdrawal(ctx context.Context, c election.Claim) error {
	s.replica.mu.Lock()
	spoil := s.replica.withdraws
	s.replica.withdraws = nil
	s.replica.mu.Unlock()
	if spoil != nil {
		spoil()
	}
	return s.Elector.AwaitWithdrawal(ctx, c)
}
