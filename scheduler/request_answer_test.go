package scheduler_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cronclave/cronclave/scheduler"
)

// unreachable takes no answers before an instant, as a journal whose server is being replaced by another.
type unreachable struct {
	scheduler.Requests
	until time.Time
}

func (d unreachable) Answer(ctx context.Context, a scheduler.Answer) error {
	if time.Now().Before(d.until) {
		return errors.New("no server is there")
	}
	return d.Requests.Answer(ctx, a)
}

// A requester gets the outcome also if the journal takes no answers for some time, and is never told that a run was not started that is under way.
// Promise: P5
func TestAnswerOutlastsAFailover(t *testing.T) {
	inCluster(t, func(c *cluster) {
		b := c.board()
		away := time.Now().Add(31 * time.Second)
		c.joinAll(3, []scheduler.Job{c.job("report", yearly, time.Second), c.job("long", yearly, 20*time.Second)}, b.serve,
			func(cfg *scheduler.Config) { cfg.Requests = unreachable{cfg.Requests, away} })
		c.at(time.Second)
		b.ask("q", "report")
		b.ask("first", "long")
		c.at(10 * time.Second)
		b.ask("second", "long")
		c.at(30 * time.Second)
		if n := len(c.runs("report")); n != 1 {
			t.Fatalf("%d runs", n)
		}
		c.at(35 * time.Second)
		b.want("q", scheduler.Running, "")
		b.want("first", scheduler.Running, "")
		b.want("second", scheduler.Skipped, "overlap")
	})
}

// TestUnansweredRequestHoldsUpNoDrain: a replica that drains gives up soon.
// Promise: P9
func TestUnansweredRequestHoldsUpNoDrain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		b := c.board()
		r := c.replica("r0", []scheduler.Job{c.job("report", yearly, time.Second)}, b.serve,
			func(cfg *scheduler.Config) { cfg.Requests = unreachable{cfg.Requests, time.Now().Add(time.Hour)} })
		r.run()
		c.at(time.Second)
		b.ask("q", "report")
		c.at(20 * time.Second)
		began := time.Now()
		r.leave()
		if took := time.Since(began); took > 3*time.Second || len(c.runs("report")) != 1 {
			t.Errorf("the drain took %v, after %d runs", took, len(c.runs("report")))
		}
	})
}
