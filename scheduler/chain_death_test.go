package scheduler_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler"
)

// settler is a claimer of a replica that dies when the server has settled ticks of a job without a run, before it can tell anybody.
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

// TestDeathAfterASettlement: who is the first to hear that runs have ended settles the ticks after them, and dies. The others find those decided, and tell how.
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
				c.joinAll(3, jobs, func(cfg *scheduler.Config) { // and nobody is told of anything
					cfg.Claimer, cfg.Notices = settler{cfg.Claimer.(spy), "last", &once}, nil
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
