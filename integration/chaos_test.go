package integration

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
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
	slow(t)
	t.Parallel()
	c := newCluster(t, everySecond)
	u := newDisorder(t, c, 5)
	var from int64
	for job := range periods {
		from = max(from, c.awaitTick(t, soon, job, 0).Tick)
	}
	u.stir(t, redisTime(t, c.Client).Add(unrest))
	d := &due{cluster: c, from: from, to: redisTime(t, c.Client).Unix(), kills: u.kills}
	d.awaitOutcomes(t)
	u.stop(t)

	runs := starts(c.lines(t, ""))
	checkOnce(t, runs, 1)
	checkNotEarly(t, runs)
	c.checkTokensGrow(t, runs)
	d.checkAccounted(t, runs)
	for job := range periods {
		checkAttempts(t, c.lines(t, job), c.history(t, job))
	}
	t.Logf("%d restarts, %d kills; lateness of runs: %s", u.restarts, len(u.kills), lateness(runs))
}

// due are the ticks that a cluster owed, and the kills that excuse missing ones.
type due struct {
	*cluster
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
		d.awaitTick(t, soon, "second", later)
		if d.settled(t) {
			return
		}
	}
}

// settled returns whether the history has an outcome for all ticks; the outcomes are checked later.
func (d *due) settled(t *testing.T) bool {
	for job := range periods {
		outcomes := outcomesOf(d.history(t, job))
		for _, tick := range d.ticks(job) {
			if len(outcomes[tick]) == 0 || outcomes[tick][0].Outcome == "running" {
				return false
			}
		}
	}
	return true
}

func outcomesOf(history []pastRun) map[int64][]pastRun {
	outcomes := map[int64][]pastRun{}
	for _, r := range history {
		outcomes[r.Tick.Unix()] = append(outcomes[r.Tick.Unix()], r)
	}
	return outcomes
}

// checkAccounted demands that each tick that was due ran, or was in the way of a kill; and that the history has exactly
// one outcome for it, which agrees with what the run itself wrote.
func (d *due) checkAccounted(t *testing.T, runs []line) {
	t.Helper()
	ran := map[tickOf]line{}
	for _, l := range runs {
		ran[l.key()] = l
	}
	for job := range periods {
		history := d.history(t, job)
		outcomes := outcomesOf(history)
		count := map[string]int{}
		for _, tick := range d.ticks(job) {
			l, did := ran[tickOf{job, tick}]
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
			count[fmt.Sprintf("%s, ran %v", o[0].verdict(), did)]++
		}
		t.Logf("job %s: %v", job, count)
	}
}

// checkRan compares the history with what the run wrote. A run whose replica was killed before its end is abandoned.
func (d *due) checkRan(t *testing.T, l line, r pastRun) {
	t.Helper()
	if r.RunID != l.RunID || r.Token != l.Token || r.Replica != l.Replica || r.Slot == nil || *r.Slot != l.Slot {
		t.Errorf("the history does not tell of the run:\n%v\n%+v", l, r)
	}
	switch {
	case r.Outcome == "ok":
	case r.Outcome == "abandoned" && d.killedAfter(l.Replica, l.Tick):
	case r.Outcome == "lost" && r.Finished.Sub(r.Started) > leaseOfDead/2: // the machine stood still
	default:
		t.Errorf("outcome %q of a run that did well: %v", r.verdict(), l)
	}
}

// checkExcused demands a reason for a tick that did not run: its replica was killed with it in hand, or the tick found
// a lease held, by a dead replica or by a run that really lasted that long.
func (d *due) checkExcused(t *testing.T, job string, tick int64, r pastRun, history []pastRun) {
	t.Helper()
	at := time.Unix(tick, 0)
	switch r.verdict() {
	case "abandoned":
		if d.killedAfter(r.Replica, tick) {
			return
		}
	case "skipped overlap", "missed slots":
		const margin = time.Second // jitter, the time to claim, and that of a release
		held := func(from, to time.Time) bool { return !at.Before(from.Add(-margin)) && !at.After(to.Add(margin)) }
		dead := slices.ContainsFunc(d.kills, func(k kill) bool { return held(k.from, k.to.Add(leaseOfDead)) })
		alive := slices.ContainsFunc(history, func(o pastRun) bool {
			return o.Tick.Before(r.Tick) && !o.Started.IsZero() && held(o.Started, o.Finished)
		})
		if dead || alive && slowest(history) > margin {
			return
		}
	}
	t.Errorf("job %s, tick %d did not run, and nothing excuses it: %+v\nkills: %v", job, tick, r, d.kills)
}

// slowest is how long a run lasted at most. These jobs need more than a second only on a machine that stands still.
func slowest(history []pastRun) time.Duration {
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

// lateness sums up how long after its tick a run began, by the clock of Redis.
func lateness(runs []line) string {
	var late []time.Duration
	for _, l := range runs {
		late = append(late, l.At().Sub(time.Unix(l.Tick, 0)))
	}
	slices.Sort(late)
	at := func(part float64) time.Duration { return late[int(part*float64(len(late)-1))].Round(time.Millisecond) }
	return fmt.Sprintf("%d, median %v, p99 %v, most %v", len(late), at(0.5), at(0.99), at(1))
}

// disorder stops, kills and starts replicas of a cluster.
type disorder struct {
	*cluster
	random   *rand.Rand
	up       []*replica
	leaving  []*replica // asked to drain
	down     []string   // names
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

func newDisorder(t *testing.T, c *cluster, n int) *disorder {
	t.Helper()
	return &disorder{cluster: c, random: newRandom(t), up: c.startAll(t, n)}
}

// newRandom draws lots by a seed that it logs; CRONCLAVE_TEST_SEED repeats those of an earlier run.
func newRandom(t *testing.T) *rand.Rand {
	t.Helper()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("CRONCLAVE_TEST_SEED"), strconv.FormatInt(time.Now().UnixNano(), 10)), 10, 64)
	if err != nil {
		t.Fatal("CRONCLAVE_TEST_SEED:", err)
	}
	t.Logf("CRONCLAVE_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// stir goes on until an instant of the clock of Redis.
func (u *disorder) stir(t *testing.T, until time.Time) {
	t.Helper()
	for redisTime(t, u.Client).Before(until) {
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
func (u *disorder) nextMoment(t *testing.T) *replica {
	t.Helper()
	if u.random.IntN(2) == 0 {
		awaitTime(t, u.Client, redisTime(t, u.Client).Add(time.Duration(u.random.IntN(1000))*time.Millisecond))
		return nil
	}
	before := len(u.lines(t, ""))
	var lines []line
	eventually(t, startTimeout, "start of a run", func() bool { lines = u.lines(t, ""); return len(lines) > before })
	by := lines[before+u.random.IntN(len(lines)-before)].Replica
	i := slices.IndexFunc(u.up, func(r *replica) bool { return r.Name == by })
	if i < 0 {
		return nil // it is draining
	}
	return u.up[i]
}

// ready are the replicas that are up and have said so.
func (u *disorder) ready() []*replica {
	return slices.DeleteFunc(slices.Clone(u.up), func(r *replica) bool { return !slices.ContainsFunc(r.LogEntries(), announced) })
}

// takeDown kills a replica, or asks it to drain.
func (u *disorder) takeDown(t *testing.T, r *replica) {
	t.Helper()
	u.up = slices.DeleteFunc(u.up, func(o *replica) bool { return o == r })
	if u.random.IntN(2) == 0 {
		r.Term(t)
		u.leaving = append(u.leaving, r)
		return
	}
	k := kill{name: r.Name, from: redisTime(t, u.Client)}
	r.Kill(t)
	k.to = redisTime(t, u.Client)
	u.kills = append(u.kills, k)
	u.down = append(u.down, r.Name)
}

// reap looks for replicas that have drained.
func (u *disorder) reap(t *testing.T) {
	t.Helper()
	u.leaving = slices.DeleteFunc(u.leaving, func(r *replica) bool {
		if !r.Ended() {
			return false
		}
		r.wantDrained(t)
		u.down = append(u.down, r.Name)
		return true
	})
}

func (u *disorder) bringUp(t *testing.T) {
	t.Helper()
	i := u.random.IntN(len(u.down))
	u.up = append(u.up, u.start(t, u.down[i]))
	u.down = slices.Delete(u.down, i, i+1)
	u.restarts++
}

// stop ends the remaining replicas, and waits.
func (u *disorder) stop(t *testing.T) {
	t.Helper()
	for _, r := range u.leaving {
		r.wantDrained(t)
	}
	for _, r := range u.up {
		r.WaitLog(t, soon, "announcement", announced) // before it a signal ends the process
	}
	stopAll(t, u.up)
}
