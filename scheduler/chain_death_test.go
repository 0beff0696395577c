package scheduler_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler"
)

// settler is a claimer of a replica that dies when the server has settled ticks of a job without a run, before it can record that.
type settler struct {
	spy
	job  string
	once *sync.Once
}

func (m settler) Claim(ctx context.Context, claims []election.Claim) []election.Result {
	results := m.spy.Claim(ctx, claims)
	for i, r := range results {
		if claims[i].Job == m.job && r.Verdict == election.Settled {
			m.once.Do(m.replica.die)
		}
	}
	return results
}

// When the replica that settles the ticks of a job dies before it can record them, the others find these ticks decided, and record them.
// Promise: P6
func TestDeathAfterASettlement(t *testing.T) {
	for _, tc := range []struct {
		name    string
		edits   []edit
		settled []int
	}{
		{"of one tick", nil, []int{20}},
		{"of two that come due together", []edit{parallel(2, 1, 2)}, []int{20, 30}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("a", "10,20,30,50 0 0 * * *", time.Second, append(tc.edits, c.slowAt(12*time.Second, 20))...),
					c.job("last", "", 25*time.Second, after("a"))}
				var once sync.Once
				c.joinAll(3, jobs, func(cfg *scheduler.Config) { // without events
					cfg.Claimer, cfg.GrantEvents = settler{cfg.Claimer.(spy), "last", &once}, nil
				})
				c.at(5 * time.Minute)
				for _, tick := range tc.settled {
					want(t, fmt.Sprint("outcome of ", tick), c.told("last")[tick], []string{"skipped overlap"})
				}
				c.checkRuns("last", 1, 1)
			})
		})
	}
}

// lastWord is a journal of a replica that dies when it has recorded that a run of a job has ended well.
type lastWord struct {
	*replica
	job string
}

func (l lastWord) Record(ctx context.Context, records []scheduler.Record) error {
	err := l.replica.Record(ctx, records)
	if slices.ContainsFunc(records, func(r scheduler.Record) bool { return r.Job == l.job && r.Outcome == scheduler.OK }) {
		l.die()
	}
	return err
}

// A child runs although the request that reports the end of its parent is lost, and the holder dies right after it has recorded that end.
// Promise: P5
func TestEndOfAParentIsReportedAgain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		parent := c.job("a", "10 0 0 * * *", time.Second)
		jobs := []scheduler.Job{parent, c.job("last", "", time.Second, after("a"))}
		var first *replica
		jobs[0].Runner = scheduler.Func(func(ctx context.Context, run *scheduler.Run) error {
			defer first.wire.plan(fault{kind: cutAtOnce})
			return parent.Runner.Run(ctx, run).Err
		})
		first = c.replica("first", jobs, func(cfg *scheduler.Config) { cfg.Journal = lastWord{cfg.Journal.(*replica), "a"} })
		first.run()
		c.at(10*time.Second + time.Second/2)
		c.join("second", jobs)
		c.at(2 * time.Minute)
		want(t, "faults", first.wire.count(), 1)
		want(t, "outcomes of the parent", c.outcomes("a"), map[string]int{"ok": 1})
		c.checkChain(jobs[1], 1, "10")
	})
}
