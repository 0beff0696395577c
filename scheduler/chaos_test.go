package scheduler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

// seeded gives a test its random numbers. CRONCLAVE_TEST_SEED repeats a run, as far as goroutines let it.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("CRONCLAVE_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("CRONCLAVE_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// between is a random duration.
func between(rng *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(rng.Int64N(int64(to-from)))
}

// trouble makes one random fault on a wire: for a request, or for everything during a moment.
func trouble(rng *rand.Rand, w *wire) {
	switch kind := []faultKind{noReply, cutAtReply, cutAtOnce, lateRequest, noDial, "silence", "refusal"}[rng.IntN(7)]; kind {
	case lateRequest:
		w.plan(fault{kind, between(rng, 10*time.Millisecond, 3*time.Second)})
	case "silence", "refusal":
		if kind == "silence" {
			w.silence()
		} else {
			w.refuse()
		}
		pass(between(rng, 10*time.Millisecond, 4*time.Second))
		w.restore()
	default:
		w.plan(fault{kind: kind})
	}
}

// flaky is a journal that fails now and then, also after it has written.
type flaky struct {
	run.Journal
	rng *rand.Rand
}

func (f flaky) Record(ctx context.Context, records []run.Record) error {
	before, after := f.rng.IntN(20) == 0, f.rng.IntN(20) == 0
	if before {
		return errDead
	}
	err := f.Journal.Record(ctx, records)
	if after {
		return errDead
	}
	return err
}

// Each tick is granted once at most (P1), and has exactly one outcome (P6), whatever happens to the wires, the journal and the replicas, some of which
// leave, die and come back.
// Promise: P1, P6
func TestEveryTickHasOneOutcome(t *testing.T) {
	testtier.Slow(t)
	length := 15 * time.Minute
	if testtier.RaceEnabled {
		length = 4 * time.Minute
	}
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			rng := seeded(t)
			inCluster(t, func(c *cluster) {
				c.quiet = true
				jobs := []scheduler.Job{
					c.job("often", "*/2 * * * * *", 100*time.Millisecond, startDeadline(20*time.Second)),
					c.job("overlaps", "*/5 * * * * *", 7*time.Second),
					c.job("parallel", "*/10 * * * * *", 12*time.Second, parallel(2, 1, 1)),
					c.job("short-lease", "*/10 * * * * *", 4*time.Second, lease(3*time.Second), startDeadline(15*time.Second)),
					c.job("queues", "*/5 * * * * *", 7*time.Second, queued, lease(5*time.Second), startDeadline(20*time.Second)),
					c.job("replaces", "*/10 * * * * *", 12*time.Second, replaces, lease(5*time.Second)),
					c.job("pooled", "*/10 * * * * *", 4*time.Second, pool(1), lease(5*time.Second)),
					c.job("caught-up", "*/10 * * * * *", 4*time.Second, pool(1), lease(5*time.Second), startDeadline(3*time.Second), catchUp(scheduler.CatchUpAll, time.Hour)),
					c.job("stubborn", "0 * * * * *", 0, c.stubborn(50*time.Second), func(j *scheduler.Job) { j.Timeout = 30 * time.Second }),
				}
				stumbles := c.job("stumbles", "*/20 * * * * *", 0, c.failing(3, time.Second, false), retry(4, time.Second, time.Second), recovers(4), queued,
					lease(5*time.Second), startDeadline(15*time.Second))
				died := c.havoc(rng, append(slices.Clip(jobs), stumbles), length)
				pass(2 * time.Minute) // in peace, so that all that was abandoned is found
				last := time.Now().Add(-90 * time.Second)
				for _, j := range jobs {
					c.checkRuns(j.Name, max(j.Parallel, 1), 1)
					c.checkOutcomes(j.Name, last, died)
				}
				c.checkTries("stumbles", last, died)
			})
		})
	}
}

// havoc runs four replicas and makes trouble for a while. It returns which replicas died.
func (c *cluster) havoc(rng *rand.Rand, jobs []scheduler.Job, length time.Duration) (died map[string]bool) {
	died = map[string]bool{}
	born := 0
	join := func() *replica {
		born++
		seed := rand.New(rand.NewPCG(rng.Uint64(), 0))
		return c.join("r"+strconv.Itoa(born), jobs, func(cfg *scheduler.Config) { cfg.Journal = flaky{cfg.Journal, seed}; c.ranked(cfg) })
	}
	all := []*replica{join(), join(), join(), join()}
	pass(time.Second) // before the cluster has heard of a schedule it has no ticks
	for end := time.Now().Add(length); time.Now().Before(end); pass(between(rng, 10*time.Millisecond, 5*time.Second)) {
		i := rng.IntN(len(all))
		switch r := all[i]; rng.IntN(40) {
		case 0:
			r.leave()
			all[i] = join()
		case 1:
			died[r.name] = true
			r.die()
			r.Abort()
			r.stop()
			all[i] = join()
		case 2: // the server itself is away
			now := time.Since(c.start)
			c.away(now, now+between(rng, time.Second, 40*time.Second), (*wire).refuse)
		case 3: // and everybody else
			for _, r := range all {
				r.leave()
			}
			pass(between(rng, time.Second, 40*time.Second))
			for i := range all {
				all[i] = join()
			}
		default:
			trouble(rng, &r.wire)
		}
	}
	return died
}

// checkTries holds that the tries of each tick of a job have numbers of their own, and that the last of them has an outcome.
func (c *cluster) checkTries(job string, until time.Time, died map[string]bool) {
	c.t.Helper()
	c.checkAttempts(job, 1)
	last, count := map[int]run.Record{}, map[string]int{}
	for _, w := range c.words(job) {
		if s := c.second(w.Tick); last[s].Attempt <= w.Attempt {
			last[s] = w
		}
	}
	for tick := range c.due(job, until) {
		w, told := last[c.second(tick)]
		if !told || w.Outcome == run.Running && !died[w.Replica] {
			c.t.Errorf("P6: the last word on %s %d is %+v", job, c.second(tick), w)
		}
		count[fmt.Sprint(w.Attempt, " ", verdict(w))]++
	}
	c.t.Logf("%s: %v", job, count)
}

// checkOutcomes demands exactly one outcome for each tick of a job that was due until an instant. The record of a replica that died first may be
// missing: then its run is still called running.
func (c *cluster) checkOutcomes(job string, until time.Time, died map[string]bool) {
	c.t.Helper()
	told := map[int][]run.Record{} // by the second of the test
	for _, w := range c.words(job) {
		told[c.second(w.Tick)] = append(told[c.second(w.Tick)], w)
	}
	ran := map[int]int{}
	for _, s := range c.ticks(job) {
		ran[s]++
	}
	due, count := map[int]bool{}, map[string]int{}
	for tick := range c.due(job, until) {
		s := c.second(tick)
		due[s] = true
		words := told[s]
		if len(words) != 1 {
			c.t.Errorf("P6: %s %d has the outcomes %v, and ran %d times", job, s, words, ran[s])
			continue
		}
		w := words[0]
		count[verdict(w)]++
		isRun := w.Token != 0
		switch {
		case w.Outcome == run.Running && !died[w.Replica]:
			c.t.Errorf("P6: %s %d runs for ever on %s", job, s, w.Replica)
		case isRun && ran[s] == 0 && w.Outcome != run.Abandoned && w.Outcome != run.Lost: // while it waited for its pool
			c.t.Errorf("P6: %s %d is told as %s and did not run", job, s, verdict(w))
		case !isRun && ran[s] > 0:
			c.t.Errorf("P6: %s %d is told as %s and ran", job, s, verdict(w))
		}
	}
	for s := range told {
		if s <= c.second(until) && !due[s] {
			c.t.Errorf("%s: something is told of %d, which is no tick", job, s)
		}
	}
	c.t.Logf("%s: %d ticks: %v", job, len(due), count)
}

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
