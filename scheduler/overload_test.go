package scheduler_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler"
)

// Ticks that are missed because a replica stands still have the reason overload, and those that are missed because the server is away the reason redis.
// Promise: P6
func TestOverloadIsNotBlamedOnTheServer(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.join("r", []scheduler.Job{c.job("j", "*/10 * * * * *", time.Millisecond, startDeadline(2*time.Second))}, c.stands(95*time.Second, 128*time.Second))
		c.at(195 * time.Second)
		c.away(195*time.Second, 228*time.Second, (*wire).refuse)
		c.at(300 * time.Second)
		told := c.told("j")
		for s, want := range map[int]string{90: "ok", 100: "missed overload", 110: "missed overload", 120: "missed overload", 130: "ok",
			190: "ok", 200: "missed redis", 210: "missed redis", 220: "missed redis", 230: "ok"} {
			if got := fmt.Sprint(told[s]); got != "["+want+"]" {
				t.Errorf("tick %d: %s, want %s", s, got, want)
			}
		}
	})
}

// slowClaimer takes a while for each batch.
type slowClaimer struct {
	scheduler.Claimer
	delay time.Duration
}

func (s slowClaimer) Claim(ctx context.Context, claims []election.Claim) []election.Result {
	results := s.Claimer.Claim(ctx, claims)
	pass(s.delay)
	return results
}

// A replica with more ticks than it can claim until their deadlines, at a server that answers, records the others as missed for overload.
// Promise: P6
func TestTooMuchToAsk(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.quiet = true
		var jobs []scheduler.Job
		for i := range 600 { // in three batches
			jobs = append(jobs, c.job(fmt.Sprintf("j%d", i), "30 * * * * *", time.Millisecond, startDeadline(time.Second)))
		}
		c.join("r", jobs, func(cfg *scheduler.Config) {
			cfg.MaxRunning = len(jobs)
			cfg.Claimer = slowClaimer{cfg.Claimer, 700 * time.Millisecond}
		})
		c.at(50 * time.Second)
		got := map[string]int{}
		for _, j := range jobs {
			for outcome, n := range c.outcomes(j.Name) {
				got[outcome] += n
			}
		}
		want(t, "outcomes", got, map[string]int{"ok": 500, "missed overload": 100})
	})
}
