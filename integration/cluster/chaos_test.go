package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// everySecond are jobs of about a millisecond. Their deadline is long: the test checks which ticks run, not how soon.
const everySecond = `
[history]
runs = 2000

[replica]
drain_timeout = "30s"

[defaults]
lease = "2s"
start_deadline = "10s"

[jobs.second]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'

[jobs.interval]
schedule = "@every 1s"
command = 'exec "$SCRIBE"'

[jobs.even]
schedule = "*/2 * * * * *"
command = 'exec "$SCRIBE"'

[jobs.jittered]
schedule = "* * * * * *"
jitter = "400ms"
command = 'exec "$SCRIBE"'
`

// periods are the seconds between the ticks of these jobs: the tests' own word on when they are due.
var periods = map[string]int64{"second": 1, "interval": 1, "even": 2, "jittered": 1}

const (
	unrest = time.Minute
	// leaseOfDead is how long the lease of a killed replica counts as held: everySecond's.
	leaseOfDead = 2 * time.Second
	// overdue is everySecond's start_deadline and a second: after that each tick has its outcome.
	overdue = 11
)

// Five replicas that are stopped, killed and started again at random keep P1, P2, P4, P5 and P6. This is the main
// proof of these promises; at least two replicas are alive at any time. CRONCLAVE_TEST_SEED repeats the choices of an
// earlier run.
// Promise: P1, P4, P6
func TestClusterUnderRestartsAndKills(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, everySecond)
	u := newDisorder(t, c, 5)
	var from int64
	for job := range periods {
		from = max(from, c.AwaitTick(t, harness.Soon, job, 0).Tick)
	}
	u.stir(t, harness.RedisTime(t, c.Client).Add(unrest))
	d := &due{Cluster: c, from: from, to: harness.RedisTime(t, c.Client).Unix(), kills: u.kills}
	d.awaitOutcomes(t)
	u.stop(t)

	runs := harness.Starts(c.Lines(t, ""))
	harness.CheckOnce(t, runs, 1)
	harness.CheckNotEarly(t, runs)
	c.CheckTokensGrow(t, runs)
	d.checkAccounted(t, runs)
	for job := range periods {
		harness.CheckAttempts(t, c.Lines(t, job), c.History(t, job))
	}
	t.Logf("%d restarts, %d kills; lateness of runs: %s", u.restarts, len(u.kills), harness.Lateness(runs))
}

// due are the ticks that a cluster owed, and the kills that excuse missing ones.
type due struct {
	*harness.Cluster
	from, to int64 // Unix seconds
	kills    []kill
}

// ticks are those of a job, worked out from its period alone.
func (d *due) ticks(job string) []int64 {
	var list []int64
	for tick := d.from; tick <= d.to; tick++ {
		if tick%periods[job] == 0 {
			list = append(list, tick)
		}
	}
	return list
}

// awaitOutcomes waits until no outcome can be missing any more. Later ticks that run are the clock.
func (d *due) awaitOutcomes(t *testing.T) {
	t.Helper()
	for later := d.to + 2; later <= d.to+overdue; later += 3 {
		d.AwaitTick(t, harness.Soon, "second", later)
		if d.settled(t) {
			return
		}
	}
}

// settled returns whether the history has an outcome for all ticks; the outcomes are checked later.
func (d *due) settled(t *testing.T) bool {
	for job := range periods {
		outcomes := harness.OutcomesOf(d.History(t, job))
		for _, tick := range d.ticks(job) {
			if len(outcomes[tick]) == 0 || outcomes[tick][0].Outcome == "running" {
				return false
			}
		}
	}
	return true
}

// checkAccounted demands that each tick that was due ran, or was in the way of a kill; and that the history has exactly
// one outcome for it, which agrees with what the run itself wrote.
func (d *due) checkAccounted(t *testing.T, runs []harness.Line) {
	t.Helper()
	ran := map[harness.TickOf]harness.Line{}
	for _, l := range runs {
		ran[l.Key()] = l
	}
	for job := range periods {
		history := d.History(t, job)
		outcomes := harness.OutcomesOf(history)
		count := map[string]int{}
		for _, tick := range d.ticks(job) {
			l, did := ran[harness.TickOf{Job: job, Tick: tick}]
			o := outcomes[tick]
			switch {
			case len(o) != 1:
				t.Errorf("job %s, tick %d (ran: %v): %d outcomes in the history, want 1: %+v\n%v", job, tick, did, len(o), o, l)
				continue
			case did:
				d.checkRan(t, l, o[0])
			default:
				d.checkExcused(t, job, tick, o[0], history)
			}
			count[fmt.Sprintf("%s, ran %v", o[0].Verdict(), did)]++
		}
		t.Logf("job %s: %v", job, count)
	}
}

// checkRan compares the history with what the run wrote. A run whose replica was killed before its end is abandoned.
func (d *due) checkRan(t *testing.T, l harness.Line, r harness.PastRun) {
	t.Helper()
	if r.RunID != l.RunID || r.Token != l.Token || r.Replica != l.Replica || r.Slot == nil || *r.Slot != l.Slot {
		t.Errorf("the history does not tell of the run:\n%v\n%+v", l, r)
	}
	switch {
	case r.Outcome == "ok":
	case r.Outcome == "abandoned" && d.killedAfter(l.Replica, l.Tick):
	case r.Outcome == "lost" && r.Finished.Sub(r.Started) > leaseOfDead/2: // the machine stood still
	default:
		t.Errorf("outcome %q of a run that did well: %v", r.Verdict(), l)
	}
}

// checkExcused demands a reason for a tick that did not run: its replica was killed with it in hand, or the tick found
// a lease held, by a dead replica or by a run that really lasted that long.
func (d *due) checkExcused(t *testing.T, job string, tick int64, r harness.PastRun, history []harness.PastRun) {
	t.Helper()
	at := time.Unix(tick, 0)
	switch r.Verdict() {
	case "abandoned":
		if d.killedAfter(r.Replica, tick) {
			return
		}
	case "skipped overlap", "missed slots":
		const margin = time.Second // jitter, a claim and a release take less
		held := func(from, to time.Time) bool { return !at.Before(from.Add(-margin)) && !at.After(to.Add(margin)) }
		dead := slices.ContainsFunc(d.kills, func(k kill) bool { return held(k.from, k.to.Add(leaseOfDead)) })
		alive := slices.ContainsFunc(history, func(o harness.PastRun) bool {
			return o.Tick.Before(r.Tick) && !o.Started.IsZero() && held(o.Started, o.Finished)
		})
		if dead || alive && slowest(history) > margin {
			return
		}
	}
	t.Errorf("job %s, tick %d did not run, and nothing excuses it: %+v\nkills: %v", job, tick, r, d.kills)
}

// slowest is how long a run lasted at most. These jobs need more than a second only on a machine that stands still.
func slowest(history []harness.PastRun) time.Duration {
	var longest time.Duration
	for _, r := range history {
		longest = max(longest, r.Finished.Sub(r.Started))
	}
	return longest
}

// killedAfter returns whether a replica was killed in the time in which it could have had a tick.
func (d *due) killedAfter(name string, tick int64) bool {
	return slices.ContainsFunc(d.kills, func(k kill) bool {
		return k.name == name && k.to.Unix() >= tick && k.from.Unix() <= tick+overdue
	})
}

// disorder stops, kills and starts replicas of a cluster.
type disorder struct {
	*harness.Cluster
	random   *rand.Rand
	up       []*harness.Replica
	leaving  []*harness.Replica // asked to drain
	down     []string           // names
	kills    []kill
	restarts int
}

// kill is a SIGKILL: the replica died between two instants of the clock of Redis.
type kill struct {
	name     string
	from, to time.Time
}

func (k kill) String() string {
	return fmt.Sprintf("%s at %s", k.name, k.from.Format("15:04:05.000"))
}

func newDisorder(t *testing.T, c *harness.Cluster, n int) *disorder {
	t.Helper()
	return &disorder{Cluster: c, random: harness.NewRandom(t), up: c.StartAll(t, n)}
}

// stir goes on until an instant of the clock of Redis.
func (u *disorder) stir(t *testing.T, until time.Time) {
	t.Helper()
	for harness.RedisTime(t, u.Client).Before(until) {
		victim := u.nextMoment(t)
		u.reap(t)
		ready := u.ready()
		switch {
		case len(ready) > 2 && (len(u.down) == 0 || u.random.IntN(2) == 0):
			if !slices.Contains(ready, victim) {
				victim = ready[u.random.IntN(len(ready))]
			}
			u.takeDown(t, victim)
		case len(u.down) > 0:
			u.bringUp(t)
		}
	}
}

// nextMoment waits for some instant in the next second, or for the start of a run, and then returns its replica.
func (u *disorder) nextMoment(t *testing.T) *harness.Replica {
	t.Helper()
	if u.random.IntN(2) == 0 {
		harness.AwaitTime(t, u.Client, harness.RedisTime(t, u.Client).Add(time.Duration(u.random.IntN(1000))*time.Millisecond))
		return nil
	}
	before := len(u.Lines(t, ""))
	var lines []harness.Line
	harness.Eventually(t, harness.StartTimeout, "start of a run", func() bool { lines = u.Lines(t, ""); return len(lines) > before })
	by := lines[before+u.random.IntN(len(lines)-before)].Replica
	i := slices.IndexFunc(u.up, func(r *harness.Replica) bool { return r.Name == by })
	if i < 0 {
		return nil // it is draining
	}
	return u.up[i]
}

// ready are the replicas that are up and have said so.
func (u *disorder) ready() []*harness.Replica {
	return slices.DeleteFunc(slices.Clone(u.up), func(r *harness.Replica) bool { return !slices.ContainsFunc(r.LogEntries(), harness.Announced) })
}

// takeDown kills a replica, or asks it to drain.
func (u *disorder) takeDown(t *testing.T, r *harness.Replica) {
	t.Helper()
	u.up = slices.DeleteFunc(u.up, func(o *harness.Replica) bool { return o == r })
	if u.random.IntN(2) == 0 {
		r.Term(t)
		u.leaving = append(u.leaving, r)
		return
	}
	k := kill{name: r.Name, from: harness.RedisTime(t, u.Client)}
	r.Kill(t)
	k.to = harness.RedisTime(t, u.Client)
	u.kills = append(u.kills, k)
	u.down = append(u.down, r.Name)
}

// reap looks for replicas that have drained.
func (u *disorder) reap(t *testing.T) {
	t.Helper()
	u.leaving = slices.DeleteFunc(u.leaving, func(r *harness.Replica) bool {
		if !r.Ended() {
			return false
		}
		r.WantDrained(t)
		u.down = append(u.down, r.Name)
		return true
	})
}

func (u *disorder) bringUp(t *testing.T) {
	t.Helper()
	i := u.random.IntN(len(u.down))
	u.up = append(u.up, u.Start(t, u.down[i]))
	u.down = slices.Delete(u.down, i, i+1)
	u.restarts++
}

// stop ends the remaining replicas, and waits.
func (u *disorder) stop(t *testing.T) {
	t.Helper()
	for _, r := range u.leaving {
		r.WantDrained(t)
	}
	for _, r := range u.up {
		r.WaitLog(t, harness.Soon, "announcement", harness.Announced) // before it a signal ends the process
	}
	harness.StopAll(t, u.up)
}
