package scheduler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/scheduler"
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
	scheduler.Journal
	rng *rand.Rand
}

func (f flaky) Record(ctx context.Context, records []scheduler.Record) error {
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
	last, count := map[int]scheduler.Record{}, map[string]int{}
	for _, w := range c.words(job) {
		if s := c.second(w.Tick); last[s].Attempt <= w.Attempt {
			last[s] = w
		}
	}
	for tick := range c.due(job, until) {
		w, told := last[c.second(tick)]
		if !told || w.Outcome == scheduler.Running && !died[w.Replica] {
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
	told := map[int][]scheduler.Record{} // by the second of the test
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
		case w.Outcome == scheduler.Running && !died[w.Replica]:
			c.t.Errorf("P6: %s %d runs for ever on %s", job, s, w.Replica)
		case isRun && ran[s] == 0 && w.Outcome != scheduler.Abandoned && w.Outcome != scheduler.Lost: // while it waited for its pool
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
