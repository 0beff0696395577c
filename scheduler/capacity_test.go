package scheduler_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/scheduler"
)

// TestPlacesThatWereNotWonAreUsed: a replica whose claims were lost to others has its places free again, and
// takes the ticks that it had left aside for want of a place.
func TestPlacesThatWereNotWonAreUsed(t *testing.T) {
	testtier.Slow(t)
	inCluster(t, func(c *cluster) {
		var jobs []scheduler.Job
		for i := range 40 {
			jobs = append(jobs, c.job(fmt.Sprint("j", i), "0 * * * * *", 50*time.Second, startDeadline(5*time.Second)))
		}
		c.joinAll(4, jobs, func(cfg *scheduler.Config) { cfg.MaxRunning = 10 })
		const minutes = 20 // chance decides which replica claims which tick
		c.at(minutes*time.Minute + 30*time.Second)
		for _, j := range jobs {
			want(t, j.Name, c.ticks(j.Name), seconds(60, minutes*60, 60))
		}
	})
}

// TestManyJobsAtOnce has far more jobs due at one instant than may run at once.
func TestManyJobsAtOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.quiet = true
		var jobs []scheduler.Job
		for i := range 200 {
			jobs = append(jobs, c.job(fmt.Sprint("j", i), "0 1 0 * * *", time.Second, startDeadline(time.Minute)))
		}
		c.joinAll(2, jobs, func(cfg *scheduler.Config) { cfg.MaxRunning = 10 })
		c.at(time.Minute + 30*time.Second)
		c.mu.Lock()
		defer c.mu.Unlock()
		want(t, "runs", len(c.ran), len(jobs))
		most := 0
		for i := range c.ran {
			n := 1
			for _, o := range c.ran[:i] {
				if o.Replica == c.ran[i].Replica && o.to.After(c.ran[i].from) {
					n++
				}
			}
			most = max(most, n)
		}
		want(t, "most at once on a replica", most, 10)
		if last := c.ran[len(c.ran)-1].from; last.After(c.start.Add(time.Minute + 11*time.Second)) {
			t.Errorf("the last began at %v: places were left empty", last.Sub(c.start))
		}
	})
}

// TestUnreadyReplicaStartsNothing: its ticks wait, or are left to others, until runs may be started again.
// Promise: P7
func TestUnreadyReplicaStartsNothing(t *testing.T) {
	for _, others := range []int{0, 2} {
		t.Run(fmt.Sprint(others, " others"), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond, startDeadline(30*time.Second))}
				var unready atomic.Bool
				c.join("r", jobs, func(cfg *scheduler.Config) { cfg.Ready = func() bool { return !unready.Load() } })
				for i := range others {
					c.join(fmt.Sprint("other", i), jobs)
				}
				c.at(10500 * time.Millisecond)
				unready.Store(true)
				c.at(20500 * time.Millisecond)
				for _, r := range c.runs("j") {
					if r.Replica == "r" && c.second(r.Tick) > 10 {
						t.Errorf("started tick %d", c.second(r.Tick))
					}
				}
				unready.Store(false)
				c.at(21900 * time.Millisecond)
				want(t, "ticks in the order of their starts", c.ticks("j"), seconds(1, 21, 1))
			})
		})
	}
}
