package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cronclave/cronclave/scheduler"
)

// TestWinsAreSpread over the replicas, and each tick costs one request: those who hear who won do not ask.
func TestWinsAreSpread(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var jobs []scheduler.Job
		for i := range 300 {
			jobs = append(jobs, c.job(fmt.Sprint("j", i), "*/10 * * * * *", time.Millisecond))
		}
		replicas := c.joinAll(3, jobs, c.ranked)
		c.at(15 * time.Second)
		asked, wins := 0, map[string]int{}
		for _, r := range replicas {
			asked += len(r.claims(c.start))
		}
		for _, j := range jobs {
			c.checkRuns(j.Name, 1, 1)
			want(t, "ticks of "+j.Name, c.ticks(j.Name), []int{10})
			wins[c.runs(j.Name)[0].Replica]++
		}
		if asked > len(jobs)*11/10 { // some are under way when the event comes
			t.Errorf("%d claims for %d ticks", asked, len(jobs))
		}
		for name, n := range wins {
			if n < 60 || n > 140 {
				t.Errorf("%s won %d of %d", name, n, len(jobs))
			}
		}
	})
}

// The first replica in the ranks of a job may be dead, and the others do not wait for it.
func TestDeadFavouriteCostsMilliseconds(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var jobs []scheduler.Job
		for i := range 30 {
			jobs = append(jobs, c.job(fmt.Sprint("j", i), "*/10 * * * * *", time.Millisecond))
		}
		replicas := c.joinAll(3, jobs, c.ranked)
		c.at(15 * time.Second)
		replicas[0].die()
		c.at(25 * time.Second)
		for _, j := range jobs {
			runs := c.runs(j.Name)
			if len(runs) != 2 {
				t.Fatalf("%s ran %d times", j.Name, len(runs))
			}
			if late := runs[1].from.Sub(runs[1].Tick); late > 20*time.Millisecond {
				t.Errorf("%s began %v late", j.Name, late)
			}
		}
	})
}

// Replicas that lost a tick watch its run although they never claimed it: the winner may die.
func TestLosersKeepWatch(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "10 0 0 * * *", time.Minute, lease(10*time.Second))}
		replicas := c.joinAll(3, jobs, c.ranked)
		c.at(12 * time.Second)
		asked := 0
		for _, r := range replicas {
			asked += len(r.claims(c.start))
			if r.name == c.runs("j")[0].Replica {
				r.die()
			}
		}
		want(t, "claims", asked, 1)
		c.at(23 * time.Second)
		want(t, "told", c.told("j")[10], []string{"abandoned"})
	})
}

// An event that is not heard costs a claim, and nothing else.
func TestSilentEvents(t *testing.T) {
	inCluster(t, func(c *cluster) {
		deaf := func(cfg *scheduler.Config) { c.ranked(cfg); cfg.GrantEvents = nil }
		replicas := c.joinAll(3, []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond)}, deaf)
		c.at(10500 * time.Millisecond)
		want(t, "ticks that ran", c.ticks("j"), seconds(1, 10, 1))
		for _, r := range replicas {
			want(t, "claims of "+r.name, len(r.claims(c.start)), 10)
		}
	})
}

// TestNoticeOfOneGrantOfSeveral is no reason not to ask: one of those that ask first is dead, and another takes its place.
func TestNoticeOfOneGrantOfSeveral(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var jobs []scheduler.Job
		for i := range 10 {
			jobs = append(jobs, c.job(fmt.Sprint("j", i), "*/10 * * * * *", time.Millisecond, parallel(2, 2, 1)))
		}
		replicas := c.joinAll(3, jobs, c.ranked)
		c.at(15 * time.Second)
		replicas[0].die()
		c.at(25 * time.Second)
		for _, j := range jobs {
			want(t, "ticks of "+j.Name, c.ticks(j.Name), []int{10, 10, 20, 20})
		}
	})
}

// The replica that claims last claims first the ticks to which their favourite comes last. That delays no tick.
// Promise: P9
func TestOthersHelpFromTheOtherEnd(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var jobs []scheduler.Job
		for i := range 200 {
			jobs = append(jobs, c.job(fmt.Sprint("j", i), "*/10 * * * * *", time.Millisecond))
		}
		replicas := c.joinAll(2, jobs, c.ranked)
		tick := c.start.Add(10 * time.Second)
		turns := func(job string) (first, second time.Duration) {
			a, b := replicas[0].Turn(job, tick), replicas[1].Turn(job, tick)
			return min(a, b), max(a, b)
		}
		differ := 0
		for i, j := range jobs {
			first, second := turns(j.Name)
			if first > time.Microsecond || second < 4*time.Millisecond {
				t.Errorf("%s is asked for after %v and %v", j.Name, first, second)
			}
			for _, other := range jobs[:i] {
				f, s := turns(other.Name)
				if (first < f) != (second > s) {
					t.Fatalf("%s is asked for after %v and %v, %s after %v and %v", j.Name, first, second, other.Name, f, s)
				}
				if first < f {
					differ++
				}
			}
		}
		if differ < 1000 {
			t.Errorf("only %d pairs of jobs are asked for one after the other", differ)
		}
	})
}
