package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// inPool has the lines of all runs as if they were of one job, since a pool treats them so.
func inPool(lines []line) []line {
	all := slices.Clone(lines)
	for i := range all {
		all[i].Job = "pool"
	}
	return all
}

// Jobs and commands that share a pool never hold more slots than it has. Three jobs run on two replicas, beside
// commands under lock, and each tick has one outcome.
// Promise: P3
func TestPoolAcrossReplicas(t *testing.T) {
	slow(t)
	t.Parallel()
	for _, slots := range []int{1, 2} {
		t.Run(fmt.Sprint(slots, " slots"), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, fmt.Sprintf(`
[pools.warehouse]
slots = %d

[defaults]
pool = "warehouse"
schedule = "*/2 * * * * *"
command = 'exec "$SCRIBE" -for 700ms -beat 20ms'
lease = "3s"

[jobs.a]
[jobs.b]
[jobs.c]
start_deadline = "5s"
`, slots))
			replicas := c.startAll(t, 2)
			first := c.awaitTick(t, startTimeout, "a", 0).Tick
			var others []*replica
			for i := range 3 {
				others = append(others, c.lock(t, fmt.Sprint("other", i), "warehouse", []string{"--pool", "warehouse", "--wait", "1m"}, "-for", "1s", "-beat", "20ms"))
			}
			for _, r := range others {
				r.wantEnd(t, startTimeout, 0, "")
			}
			for _, job := range []string{"a", "b", "c"} {
				c.awaitTick(t, startTimeout, job, first+12)
			}
			stopAll(t, replicas)
			checkAtMost(t, inPool(c.lines(t, "")), slots)
			for _, job := range []string{"a", "b", "c"} {
				checkOnce(t, starts(c.lines(t, job)), 1)
				c.checkOutcomesOfPool(t, job, first, first+12)
			}
		})
	}
}

// checkOutcomesOfPool demands that each tick of a job every two seconds has one outcome, which is that of a run, or for want of the pool.
func (c *cluster) checkOutcomesOfPool(t *testing.T, job string, from, to int64) {
	t.Helper()
	told := map[int64][]string{}
	for _, r := range c.history(t, job) {
		told[r.Tick.Unix()] = append(told[r.Tick.Unix()], r.verdict())
	}
	for tick := from; tick < to; tick += 2 {
		if len(told[tick]) != 1 || !slices.Contains([]string{"ok", "missed pool", "skipped overlap"}, told[tick][0]) {
			t.Errorf("job %s, tick %d: %q", job, tick, told[tick])
		}
	}
}

// holdsPool is a job that holds a pool, and one that waits for it.
const holdsPool = `
[pools.warehouse]
slots = 1

[defaults]
pool = "warehouse"
lease = "3s"
start_deadline = "5m"

[jobs.long]
schedule = "*/10 * * * * *"
command = 'exec "$SCRIBE" -for 5m -beat 20ms -ignore-term -child'
kill_grace = "1s"
`

// The processes of a killed replica are dead when the next holder has its slot of the pool (P3).
// Promise: P3
func TestPoolHolderIsKilled(t *testing.T) {
	slow(t)
	t.Parallel()
	c := newCluster(t, holdsPool)
	replicas := c.startAll(t, 2)
	first := c.await(t, startTimeout, "long", "first run", func(l line) bool { return l.Event == "start" })
	waiter := c.lock(t, "waiter", "warehouse", []string{"--pool", "warehouse", "--wait", "5m", "--lease", "3s"}, forever...)
	eventually(t, soon, "a status of the full pool", func() bool {
		s := c.status(t)
		p := s.Pools[0]
		return len(p.Holders) == 1 && p.Holders[0].RunID == first.RunID && p.Holders[0].Owner == first.Replica && p.Waiters >= 1 &&
			strings.Contains(p.Waiting[0].Owner, "(pid ") && slices.ContainsFunc(s.Problems, func(p problem) bool { return p.Code == "pool_full" })
	})
	named(t, replicas, first.Replica).Kill(t)
	c.awaitHolder(t, "waiter", "warehouse")
	if i := slices.IndexFunc(of(first.RunID, c.lines(t, "long")), func(l line) bool { return !over(l.PID) }); i >= 0 {
		t.Error("a process of the first run is alive when the next one has the pool")
	}
	waiter.Kill(t)
	second := c.await(t, startTimeout, "long", "next run", func(l line) bool { return l.Event == "start" && l.RunID != first.RunID })
	if second.Replica == first.Replica || second.Token <= first.Token {
		t.Errorf("the next run is not elsewhere, or its token is not greater:\n%s", text([]line{first, second}))
	}
	checkAtMost(t, inPool(c.lines(t, "")), 1)
	for _, r := range replicas { // no need to wait for the drain
		if r.Name != first.Replica {
			r.Kill(t)
		}
	}
}

// inLine is how many wait for the pool.
func (c *cluster) inLine(t *testing.T) int {
	t.Helper()
	n, err := c.Client.ZCard(t.Context(), fmt.Sprintf("cronclave:%s:{warehouse}:pool:queue", c.Namespace)).Result()
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// The processes of a frozen replica are dead before the next holder has its slot of the pool (P3).
// Promise: P3
func TestFrozenPoolHolderLosesItsRun(t *testing.T) {
	t.Parallel()
	c := newCluster(t, holdsPool)
	replicas := c.startAll(t, 1)
	first := c.await(t, startTimeout, "long", "first run", func(l line) bool { return l.Event == "start" })
	waiter := c.lock(t, "waiter", "warehouse", []string{"--pool", "warehouse", "--wait", "5m", "--lease", "3s"}, forever...)
	eventually(t, soon, "somebody in line", func() bool { return c.inLine(t) == 1 })
	replicas[0].Stop(t)
	next := c.awaitHolder(t, "waiter", "warehouse")
	mine := of(first.RunID, c.lines(t, "long"))
	if i := slices.IndexFunc(mine, func(l line) bool { return !over(l.PID) }); i >= 0 || !latest(mine).Before(next.At()) {
		t.Errorf("the first run wrote until %v, the next one began at %v", latest(mine), next.At())
	}
	replicas[0].Cont(t)
	waiter.Kill(t)
	replicas[0].Kill(t)
	checkAtMost(t, inPool(c.lines(t, "")), 1)
}

// A replica that drains gives back a run that waits for a pool, and another replica runs its tick.
func TestDrainGivesBackWhatWaitsForAPool(t *testing.T) {
	slow(t)
	t.Parallel()
	c := newCluster(t, `
[pools.warehouse]
slots = 1

[jobs.patient]
schedule = "*/20 * * * * *"
command = '"$SCRIBE"'
pool = "warehouse"
lease = "1m"
start_deadline = "5m"
`)
	holder := c.lock(t, "holder", "warehouse", []string{"--pool", "warehouse"}, forever...)
	c.awaitHolder(t, "holder", "warehouse")
	replicas := c.startAll(t, 2)
	waits := func(r *replica) logEntry {
		for _, e := range r.LogEntries() {
			if strings.HasPrefix(e.Message(), "waiting for a slot of the pool") {
				return e
			}
		}
		return nil
	}
	leaver, other := replicas[0], replicas[1]
	eventually(t, startTimeout, "run that waits", func() bool { return waits(leaver) != nil || waits(other) != nil })
	if waits(leaver) == nil {
		leaver, other = other, leaver
	}
	tick := waits(leaver)["tick"]
	leaver.Term(t)
	leaver.wantDrained(t)
	e := other.WaitLog(t, soon, "run that waits", message("waiting for a slot of the pool"))
	if e["tick"] != tick {
		t.Errorf("tick %v was given back, and %v waits", tick, e["tick"])
	}
	holder.Term(t)
	ran := c.await(t, soon, "patient", "run", func(l line) bool { return l.Event == "start" })
	if ran.Replica != other.Name || time.Unix(ran.Tick, 0).UTC().Format(time.RFC3339) != tick {
		t.Errorf("want tick %v on %s: %v", tick, other.Name, ran)
	}
	stopAll(t, []*replica{other})
	checkOnce(t, starts(c.lines(t, "patient")), 1)
	for _, r := range c.history(t, "patient") {
		if r.Tick.Unix() == ran.Tick && r.verdict() != "ok" {
			t.Errorf("told as %s", r.verdict())
		}
	}
}
