package scheduler_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/scheduler"
)

// often is the time between two ticks of the most frequent jobs, at which the faults are aimed.
const often = 3 * time.Minute

// simulated are the jobs of the simulation: how often they are due, by hand, beside their expressions. In thirty days
// they have 44,640 ticks.
var simulated = []struct {
	name, schedule string
	every          time.Duration
}{
	{"ingest", "*/3 * * * *", often},
	{"health", "0-57/3 * * * *", often},
	{"rollup", "*/5 * * * *", 5 * time.Minute},
	{"report", "3-59/10 * * * *", 10 * time.Minute},
	{"backup", "0,15,30,45 * * * *", 15 * time.Minute},
}

// TestThirtyDays runs five replicas for thirty simulated days, with more than a thousand faults on their wires: replies that are lost after
// the request was executed, connections cut before and after, dials refused, requests that arrive seconds late, and silence. Every tick is
// granted exactly once (P1, P5), none before its instant (P2), with tokens that grow (P4). Under the race detector, which
// makes it ten times as slow, it is eight hours; `make test-long` runs the whole.
// Promise: P1, P2, P4, P5
func TestThirtyDays(t *testing.T) {
	testtier.Slow(t)
	length := 30 * 24 * time.Hour
	if testtier.RaceEnabled {
		length = 8 * time.Hour
	}
	rng := seeded(t)
	inCluster(t, func(c *cluster) {
		c.quiet = true
		truth := &grants{count: map[grant]int{}, newest: map[string]scheduler.Run{}, t: t}
		var jobs []scheduler.Job
		for _, j := range simulated {
			jobs = append(jobs, scheduler.Job{Name: j.name, Schedule: []string{j.schedule}, Runner: scheduler.Func(truth.observe)})
		}
		replicas := c.joinAll(5, jobs, c.ranked)
		end := c.start.Add(length)
		for time.Now().Before(end) {
			annoy(rng, replicas)
		}
		end = time.Now().Add(time.Hour).Truncate(time.Hour).Add(30 * time.Second) // in peace
		pass(time.Until(end))

		faults := 0
		for _, r := range replicas {
			faults += r.wire.count()
		}
		ticks := truth.check(c.start, end)
		t.Logf("%v, %d ticks, %d requests spoiled, granted by replica: %v", length, ticks, faults, truth.wins)
		if least := int(length.Hours()) * 1000 / (30 * 24); faults < least {
			t.Errorf("only %d faults came true: %d are to be survived", faults, least)
		}
	})
}

// annoy makes trouble just before or around a tick of the most frequent jobs, when requests are on their way, on one or two of the replicas.
func annoy(rng *rand.Rand, replicas []*replica) {
	pass(between(rng, time.Minute, 40*time.Minute))
	pass(time.Until(time.Now().Truncate(often).Add(often - between(rng, 0, time.Second))))
	for range 1 + rng.IntN(2) {
		trouble(rng, &replicas[rng.IntN(len(replicas))].wire)
	}
}

// grant is a tick of a job.
type grant struct {
	job  string
	tick int64
}

// grants is what the jobs' functions have seen.
type grants struct {
	t *testing.T

	mu     sync.Mutex
	count  map[grant]int
	newest map[string]scheduler.Run // by job
	wins   map[string]int           // by replica
}

// observe is every job's function.
func (g *grants) observe(_ context.Context, run *scheduler.Run) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wins == nil {
		g.wins = map[string]int{}
	}
	g.wins[run.Replica]++
	g.count[grant{run.Job, run.Tick.Unix()}]++
	if now := time.Now(); now.Before(run.Tick) {
		g.t.Errorf("P2: %s %v ran at %v", run.Job, run.Tick, now)
	}
	if last := g.newest[run.Job]; run.Token <= last.Token {
		g.t.Errorf("P4: %s %v has token %d after %d of %v", run.Job, run.Tick, run.Token, last.Token, last.Tick)
	}
	g.newest[run.Job] = *run
	return nil
}

// check compares the grants with the ticks that the jobs have by hand, and counts those.
func (g *grants) check(start, end time.Time) (ticks int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, j := range simulated {
		first := start.Truncate(time.Hour).Add(offsetOf(j.name))
		for at := first; !at.After(end); at = at.Add(j.every) {
			if !at.After(start) {
				continue
			}
			ticks++
			if n := g.count[grant{j.name, at.Unix()}]; n != 1 {
				g.t.Errorf("%s %v was granted %d times", j.name, at, n)
			}
			delete(g.count, grant{j.name, at.Unix()})
		}
	}
	for k, n := range g.count {
		g.t.Errorf("%s %v is no tick, and ran %d times", k.job, time.Unix(k.tick, 0).UTC(), n)
	}
	return ticks
}

// offsetOf is where in the hour a job's ticks begin.
func offsetOf(job string) time.Duration {
	if job == "report" {
		return 3 * time.Minute
	}
	return 0
}
