package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// Jobs and commands that share a pool never hold more slots than it has. Three jobs run on two replicas, beside
// commands under lock, and each tick has one outcome.
// Promise: P3
func TestPoolAcrossReplicas(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, slots := range []int{1, 2} {
		t.Run(fmt.Sprint(slots, " slots"), func(t *testing.T) {
			t.Parallel()
			c := harness.NewCluster(t, fmt.Sprintf(`
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
			replicas := c.StartAll(t, 2)
			first := c.AwaitTick(t, harness.StartTimeout, "a", 0).Tick
			var others []*harness.Replica
			for i := range 3 {
				others = append(others, c.Lock(t, fmt.Sprint("other", i), "warehouse", []string{"--pool", "warehouse", "--wait", "1m"}, "-for", "1s", "-beat", "20ms"))
			}
			for _, r := range others {
				r.WantEnd(t, harness.StartTimeout, 0, "")
			}
			for _, job := range []string{"a", "b", "c"} {
				c.AwaitTick(t, harness.StartTimeout, job, first+12)
			}
			harness.StopAll(t, replicas)
			harness.CheckAtMost(t, harness.InPool(c.Lines(t, "")), slots)
			for _, job := range []string{"a", "b", "c"} {
				harness.CheckOnce(t, harness.Starts(c.Lines(t, job)), 1)
				c.CheckOutcomesOfPool(t, job, first, first+12)
			}
		})
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
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, holdsPool)
	replicas := c.StartAll(t, 2)
	first := c.Await(t, harness.StartTimeout, "long", "first run", func(l harness.Line) bool { return l.Event == "start" })
	waiter := c.Lock(t, "waiter", "warehouse", []string{"--pool", "warehouse", "--wait", "5m", "--lease", "3s"}, harness.Forever...)
	harness.Eventually(t, harness.Soon, "a status of the full pool", func() bool {
		s := c.Status(t)
		p := s.Pools[0]
		return len(p.Holders) == 1 && p.Holders[0].RunID == first.RunID && p.Holders[0].Owner == first.Replica && p.Waiters >= 1 &&
			strings.Contains(p.Waiting[0].Owner, "(pid ") && slices.ContainsFunc(s.Problems, func(p harness.Problem) bool { return p.Code == "pool_full" })
	})
	harness.ReplicaNamed(t, replicas, first.Replica).Kill(t)
	c.AwaitHolder(t, "waiter", "warehouse")
	if i := slices.IndexFunc(harness.RunLines(first.RunID, c.Lines(t, "long")), func(l harness.Line) bool { return !harness.HasEnded(l.PID) }); i >= 0 {
		t.Error("a process of the first run is alive when the next one has the pool")
	}
	waiter.Kill(t)
	second := c.Await(t, harness.StartTimeout, "long", "next run", func(l harness.Line) bool { return l.Event == "start" && l.RunID != first.RunID })
	if second.Replica == first.Replica || second.Token <= first.Token {
		t.Errorf("the next run is not elsewhere, or its token is not greater:\n%s", harness.TextOf([]harness.Line{first, second}))
	}
	harness.CheckAtMost(t, harness.InPool(c.Lines(t, "")), 1)
	for _, r := range replicas { // no need to wait for the drain
		if r.Name != first.Replica {
			r.Kill(t)
		}
	}
}

// The processes of a frozen replica are dead before the next holder has its slot of the pool (P3).
// Promise: P3
func TestFrozenPoolHolderLosesItsRun(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, holdsPool)
	replicas := c.StartAll(t, 1)
	first := c.Await(t, harness.StartTimeout, "long", "first run", func(l harness.Line) bool { return l.Event == "start" })
	waiter := c.Lock(t, "waiter", "warehouse", []string{"--pool", "warehouse", "--wait", "5m", "--lease", "3s"}, harness.Forever...)
	harness.Eventually(t, harness.Soon, "somebody in line", func() bool { return c.InLine(t) == 1 })
	replicas[0].Stop(t)
	next := c.AwaitHolder(t, "waiter", "warehouse")
	mine := harness.RunLines(first.RunID, c.Lines(t, "long"))
	if i := slices.IndexFunc(mine, func(l harness.Line) bool { return !harness.HasEnded(l.PID) }); i >= 0 || !harness.LatestAt(mine).Before(next.At()) {
		t.Errorf("the first run wrote until %v, the next one began at %v", harness.LatestAt(mine), next.At())
	}
	replicas[0].Cont(t)
	waiter.Kill(t)
	replicas[0].Kill(t)
	harness.CheckAtMost(t, harness.InPool(c.Lines(t, "")), 1)
}

// A replica that drains gives back a run that waits for a pool, and another replica runs its tick.
func TestDrainGivesBackWhatWaitsForAPool(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, `
[pools.warehouse]
slots = 1

[jobs.patient]
schedule = "*/20 * * * * *"
command = '"$SCRIBE"'
pool = "warehouse"
lease = "1m"
start_deadline = "5m"
`)
	holder := c.Lock(t, "holder", "warehouse", []string{"--pool", "warehouse"}, harness.Forever...)
	c.AwaitHolder(t, "holder", "warehouse")
	replicas := c.StartAll(t, 2)
	waits := func(r *harness.Replica) harness.LogEntry {
		for _, e := range r.LogEntries() {
			if strings.HasPrefix(e.Message(), "waiting for a slot of the pool") {
				return e
			}
		}
		return nil
	}
	leaver, other := replicas[0], replicas[1]
	harness.Eventually(t, harness.StartTimeout, "run that waits", func() bool { return waits(leaver) != nil || waits(other) != nil })
	if waits(leaver) == nil {
		leaver, other = other, leaver
	}
	tick := waits(leaver)["tick"]
	leaver.Term(t)
	leaver.WantDrained(t)
	e := other.WaitLog(t, harness.Soon, "run that waits", harness.MessageHas("waiting for a slot of the pool"))
	if e["tick"] != tick {
		t.Errorf("tick %v was given back, and %v waits", tick, e["tick"])
	}
	holder.Term(t)
	ran := c.Await(t, harness.Soon, "patient", "run", func(l harness.Line) bool { return l.Event == "start" })
	if ran.Replica != other.Name || time.Unix(ran.Tick, 0).UTC().Format(time.RFC3339) != tick {
		t.Errorf("want tick %v on %s: %v", tick, other.Name, ran)
	}
	harness.StopAll(t, []*harness.Replica{other})
	harness.CheckOnce(t, harness.Starts(c.Lines(t, "patient")), 1)
	for _, r := range c.History(t, "patient") {
		if r.Tick.Unix() == ran.Tick && r.Verdict() != "ok" {
			t.Errorf("told as %s", r.Verdict())
		}
	}
}
