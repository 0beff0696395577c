package scheduler_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler"
)

// lastInspection is a claimer of a replica that dies when the server has settled ticks together, before it can record them.
type lastInspection struct{ spy }

func (l lastInspection) Inspect(ctx context.Context, requests []election.InspectRequest) []election.State {
	states := l.spy.Inspect(ctx, requests)
	for _, q := range requests {
		if !q.SettleThrough.IsZero() {
			l.replica.die()
		}
	}
	return states
}

// When the only replica settles a tick without a run, and is killed before it can record that, the next replica records it.
// Promise: P6
func TestLoneReplicaDiesAfterASettlement(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "10,20 * * * * *", time.Second, c.slowAt(12*time.Second, 10))}
		c.join("dies", jobs, func(cfg *scheduler.Config) {
			cfg.Claimer = settler{cfg.Claimer.(spy), "j", new(sync.Once)}
		})
		c.at(35 * time.Second)
		want(t, "outcome of 20 before", c.told("j")[20], nil)
		lives := c.join("lives", jobs)
		c.at(36 * time.Second)
		want(t, "outcome of 20", c.told("j")[20], []string{"skipped overlap"})
		want(t, "what nobody has told of", len(lives.state("j").Settled), 0)
	})
}

// When the only replica settles ticks together, and is killed before it can record that, the next replica records it. The ticks of a schedule that was
// edited since have one record.
// Promise: P6
func TestLoneReplicaDiesAfterAGap(t *testing.T) {
	for _, tc := range []struct {
		name, schedule string
		told           map[int][]string
	}{
		{"and is started again", "*/10 * * * * *", map[int][]string{20: {"missed down"}, 30: {"missed down"}, 40: {"missed down"}}},
		{"and its schedule is edited", "35 * * * * *", map[int][]string{20: nil, 30: nil, 35: nil, 40: {"missed down"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "*/10 * * * * *", time.Millisecond, startDeadline(5*time.Second))}
				first := c.join("first", jobs)
				c.at(15 * time.Second)
				first.leave()
				c.at(47 * time.Second)
				c.join("dies", jobs, func(cfg *scheduler.Config) { cfg.Claimer = lastInspection{cfg.Claimer.(spy)} })
				c.at(48 * time.Second)
				want(t, "outcome of 40 before", c.told("j")[40], nil)
				lives := c.join("lives", []scheduler.Job{c.job("j", tc.schedule, time.Millisecond)})
				c.at(59 * time.Second)
				for tick, outcomes := range tc.told {
					want(t, "outcome of "+time.Duration(tick*1e9).String(), c.told("j")[tick], outcomes)
				}
				want(t, "what nobody has told of", len(lives.state("j").Settled), 0)
			})
		})
	}
}

// The cluster keeps how a tick was settled until its record is written, and for a while longer, and one acknowledgement covers the ticks that came
// meanwhile.
// Promise: P6
func TestSettlementIsRecorded(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.join("r", []scheduler.Job{c.job("j", "1-5 * * * * *", 20*time.Second)})
		c.at(6 * time.Second)
		want(t, "known at first", len(r.state("j").Settled), 4)
		c.at(13 * time.Second)
		want(t, "known in the end", len(r.state("j").Settled), 0)
		want(t, "outcomes", c.outcomes("j"), map[string]int{"running": 1, "skipped overlap": 4})
	})
}

// TestUnwrittenSettlementIsNotAcknowledged: as long as the journal takes nothing, the cluster goes on knowing.
// Promise: P6
func TestUnwrittenSettlementIsNotAcknowledged(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "1-5 * * * * *", 20*time.Second)}
		r := c.join("r", jobs)
		c.at(1500 * time.Millisecond)
		r.journalHangs()
		c.at(50 * time.Second)
		want(t, "known", len(r.state("j").Settled), 4)
		r.die()
		c.join("next", jobs)
		c.at(59 * time.Second)
		var outcomes []string
		for s := 2; s <= 5; s++ {
			outcomes = append(outcomes, c.told("j")[s]...)
		}
		want(t, "outcomes", strings.Join(outcomes, ", "), "skipped overlap, skipped overlap, skipped overlap, skipped overlap")
	})
}
