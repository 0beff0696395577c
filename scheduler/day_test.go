package scheduler_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/scheduler"
)

// TestDay runs eight jobs of each of thirteen kinds, with mixed policies, for a day on three replicas, which are all down for 37 minutes of it, and compares
// the records of each tick (P6), and the runs, with an evaluation of the schedules and policies that is independent of the scheduler. Under the race detector
// there is one job of each kind, for eight hours.
// Promise: P6
func TestDay(t *testing.T) {
	testtier.Slow(t)
	n, length, outage := 8*len(dayKinds), 24*time.Hour, 13*time.Hour
	if testtier.RaceEnabled {
		n, length, outage = len(dayKinds), 8*time.Hour, 6*time.Hour // some kinds stay away from the outage
	}
	rng := seeded(t)
	inCluster(t, func(c *cluster) {
		c.quiet = true
		leave := c.start.Add(outage + 3*time.Minute + 30*time.Second)
		d := day{cluster: c, length: length, leave: leave, back: leave.Add(37 * time.Minute)}
		for i := range n {
			d.plan(dayKinds[i%len(dayKinds)](c, rng), fmt.Sprintf("job-%d", i))
		}
		d.live()
		total := 0
		for _, p := range d.plans {
			total += d.check(p)
		}
		t.Logf("%d jobs, %d ticks", n, total)
	})
}

// day is what a test of one day knows.
type day struct {
	*cluster
	length      time.Duration
	leave, back time.Time // when all replicas do
	plans       []plan
}

// plan is a job with its schedule and policy by hand.
type plan struct {
	scheduler.Job
	due   func(time.Time) bool
	lasts time.Duration
	fails bool // the first try of each run
}

var dayKinds = []func(c *cluster, rng *rand.Rand) plan{
	plainDay, zonedDay, exceptDay, boundedDay, secondsDay, jitteredDay, overlapDay, pairDay, fanDay, retryDay, whereDay, queueDay, catchUpDay,
}

// minutely is a schedule of some minutes of each hour.
func minutely(rng *rand.Rand) plan {
	every := []int{5, 6, 10, 12, 15, 20, 30}[rng.IntN(7)]
	from := rng.IntN(every)
	return plan{
		Job: scheduler.Job{Schedule: []string{fmt.Sprintf("%d-59/%d * * * *", from, every)}},
		due: func(t time.Time) bool { return t.Second() == 0 && t.Minute()%every == from },
	}
}

func plainDay(_ *cluster, rng *rand.Rand) plan { return minutely(rng) }

// zonedDay has office hours somewhere.
func zonedDay(_ *cluster, rng *rand.Rand) plan {
	zone := must(time.LoadLocation([]string{"America/New_York", "Asia/Kolkata", "Europe/Berlin"}[rng.IntN(3)]))
	minute := rng.IntN(60)
	return plan{
		Job: scheduler.Job{Schedule: []string{fmt.Sprintf("%d 9-17 * * *", minute)}, Location: zone},
		due: func(t time.Time) bool {
			t = t.In(zone)
			return t.Second() == 0 && t.Minute() == minute && t.Hour() >= 9 && t.Hour() <= 17
		},
	}
}

func exceptDay(_ *cluster, rng *rand.Rand) plan {
	p := minutely(rng)
	hour, due := rng.IntN(24), p.due
	p.Except = []string{fmt.Sprintf("* %d * * *", hour)}
	p.due = func(t time.Time) bool { return t.UTC().Hour() != hour && due(t) }
	return p
}

// boundedDay begins late and ends early.
func boundedDay(c *cluster, rng *rand.Rand) plan {
	p := minutely(rng)
	due := p.due
	p.StartsAt = c.start.Add(between(rng, 0, 10*time.Hour).Truncate(time.Minute))
	p.ExpiresAt = c.start.Add(between(rng, 11*time.Hour, 24*time.Hour).Truncate(time.Minute))
	p.due = func(t time.Time) bool { return !t.Before(p.StartsAt) && t.Before(p.ExpiresAt) && due(t) }
	return p
}

func secondsDay(_ *cluster, rng *rand.Rand) plan {
	second := 1 + rng.IntN(25)
	return plan{
		Job: scheduler.Job{Schedule: []string{fmt.Sprintf("%d */15 * * * *", second)}},
		due: func(t time.Time) bool { return t.Second() == second && t.Minute()%15 == 0 },
	}
}

// until is a plan whose last tick is in an hour of the morning, before all replicas are down.
func until(hour int, p plan) plan {
	due := p.due
	p.Schedule[0] = strings.Replace(p.Schedule[0], " * ", fmt.Sprintf(" 0-%d ", hour), 1)
	p.due = func(t time.Time) bool { return t.UTC().Hour() <= hour && due(t) }
	return p
}

// jitteredDay ends early: its last ticks are too late or not, depending on their hash.
func jitteredDay(_ *cluster, rng *rand.Rand) plan {
	p := until(5, minutely(rng))
	p.Jitter = 90 * time.Second
	return p
}

// queueDay ends early, too: it does not cover ticks that wait while all are down.
func queueDay(c *cluster, rng *rand.Rand) plan {
	p := until(3, overlapDay(c, rng))
	p.Overlap = scheduler.OverlapQueue
	return p
}

func catchUpDay(_ *cluster, rng *rand.Rand) plan {
	p := minutely(rng)
	p.CatchUp.Policy = []scheduler.CatchUpPolicy{scheduler.CatchUpAll, scheduler.CatchUpLatest}[rng.IntN(2)]
	return p
}

// overlapDay has runs that last longer than it is to the next tick.
func overlapDay(_ *cluster, rng *rand.Rand) plan {
	p := minutely(rng)
	p.lasts = between(rng, 5*time.Minute, 45*time.Minute).Truncate(time.Minute) + 17*time.Second // so that no run ends when a tick is due
	return p
}

func pairDay(c *cluster, rng *rand.Rand) plan {
	p := overlapDay(c, rng)
	p.Parallel, p.PerTick, p.PerReplica = 2, 1, 2
	return p
}

func fanDay(_ *cluster, rng *rand.Rand) plan {
	p := minutely(rng)
	p.Parallel, p.PerTick, p.lasts = 3, 3, 10*time.Second
	return p
}

func retryDay(_ *cluster, rng *rand.Rand) plan {
	p := minutely(rng)
	p.Retry, p.fails = scheduler.Retry{Max: 2, Delay: 4 * time.Second}, true
	return p
}

func whereDay(_ *cluster, rng *rand.Rand) plan {
	p := minutely(rng)
	p.Where = scheduler.Labels{"zone": []string{"a", "b"}[rng.IntN(2)]}
	return p
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// plan adds a job.
func (d *day) plan(p plan, name string) {
	p.Name = name
	p.Runner = scheduler.Func(func(ctx context.Context, run *scheduler.Run) error {
		seen := d.began(run)
		select {
		case <-time.After(p.lasts):
		case <-ctx.Done():
		}
		d.ended(seen, context.Cause(ctx))
		if p.fails && run.Attempt == 1 {
			return errFirst
		}
		return context.Cause(ctx)
	})
	d.plans = append(d.plans, p)
}

var errFirst = fmt.Errorf("the first try")

// zones are the labels of the replicas.
var zones = []string{"a", "a", "b"}

// live is that day.
func (d *day) live() {
	var jobs []scheduler.Job
	for _, p := range d.plans {
		jobs = append(jobs, p.Job)
	}
	begin := func(life string) (all []*replica) {
		for i, zone := range zones {
			all = append(all, d.join(zone+life+fmt.Sprint(i), jobs, d.ranked, func(cfg *scheduler.Config) { cfg.Labels = scheduler.Labels{"zone": zone} }))
		}
		return all
	}
	all := begin("1")
	pass(time.Until(d.leave))
	for _, r := range all {
		r.stop()
	}
	for _, r := range all {
		r.leave()
	}
	pass(time.Until(d.back))
	begin("2")
	d.at(d.length + min(2*time.Hour, d.length/6)) // so that all runs of that day are over
}

// drained is when a run that was under way as all left ends, at the latest.
const drained = 25 * time.Second

// expected returns the outcomes that each tick of a job must have, until an instant.
func (d *day) expected(p plan, until time.Time) map[int][]string {
	all := map[int][]string{}
	ends := make([]time.Time, max(p.Parallel, 1))
	var last time.Time // start of the latest run that waited
	for tick, next := range d.ticksOf(p, until) {
		start := tick
		if start.After(d.leave) && start.Before(d.back) {
			if start = d.back; next.Before(start) && p.CatchUp.Policy != scheduler.CatchUpAll {
				all[d.second(tick)] = []string{"missed down"}
				continue
			}
		}
		if p.Overlap == scheduler.OverlapQueue && ends[0].After(start) && !last.After(start) { // no tick waits for the end of that run
			start, last = ends[0], ends[0]
		}
		var told []string
		for i := range ends {
			if ends[i].After(start) || len(told) == max(p.PerTick, 1) {
				continue
			}
			verdict := "ok"
			if ends[i] = start.Add(p.lasts); start.Before(d.leave) && ends[i].After(d.leave) {
				verdict, ends[i] = "canceled drain", d.leave.Add(drained)
			}
			told = append(told, verdict)
		}
		if told == nil {
			told = []string{"skipped overlap"}
		} else if p.fails {
			told = append(told, "failed "+errFirst.Error())
		}
		slices.Sort(told)
		all[d.second(tick)] = told
	}
	return all
}

// ticksOf yields the ticks of a job by hand, each with the one after it.
func (d *day) ticksOf(p plan, until time.Time) func(yield func(tick, next time.Time) bool) {
	return func(yield func(tick, next time.Time) bool) {
		var last time.Time
		for t := d.start.Add(time.Second); t.Before(until.Add(24 * time.Hour)); t = t.Add(time.Second) {
			if !p.due(t) {
				continue
			}
			if !last.IsZero() && !yield(last, t) || t.After(until) {
				return
			}
			last = t
		}
		if !last.IsZero() {
			yield(last, until.Add(24*time.Hour))
		}
	}
}

// check compares one job, and counts its ticks.
func (d *day) check(p plan) int {
	d.t.Helper()
	until := d.start.Add(d.length - time.Minute)
	told := d.told(p.Name)
	maps.DeleteFunc(told, func(second int, _ []string) bool { return second > d.second(until) })
	expected := d.expected(p, until)
	for _, second := range slices.Sorted(maps.Keys(expected)) {
		if !slices.Equal(told[second], expected[second]) {
			d.t.Errorf("%s %v (%s), tick %v: told %v, expected %v", p.Name, p.Schedule, p.lasts, d.start.Add(time.Duration(second)*time.Second), told[second], expected[second])
		}
		delete(told, second)
	}
	if len(told) > 0 {
		d.t.Errorf("%s %v: what is told is of no tick: %v", p.Name, p.Schedule, told)
	}
	if !p.fails {
		d.checkRuns(p.Name, max(p.Parallel, 1), max(p.PerTick, 1))
	}
	for _, r := range d.runs(p.Name) {
		if zone := p.Where["zone"]; zone != "" && !strings.HasPrefix(r.Replica, zone) {
			d.t.Errorf("%s of zone %s ran on %s", p.Name, zone, r.Replica)
		}
	}
	return len(expected)
}
