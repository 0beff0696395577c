package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

const chainOfTwo = `
[history]
runs = 1000

[replica]
labels = { zone = "${ZONE:-a}" }

[defaults]
lease = "2s"
start_deadline = "1m"

[jobs.extract]
schedule = "*/2 * * * * *"
where = { zone = "a" }
command = '"$SCRIBE" -for 50ms; test $((CRONCLAVE_TICK_UNIX % 6)) != 0'

[jobs.load]
after = ["extract"]
where = { zone = "b" }
command = '"$SCRIBE" -for 100ms'
`

// A chain goes on after the death of all its replicas: the child runs once for each tick that its parent had ended
// ok. The test kills every replica of the child, and later the one that has run the parent. The new replicas have no
// history to read.
// Promise: P5
func TestChainSurvivesTheDeathOfAll(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, chainOfTwo)
	before := c.Start(t, "before", "ZONE=a")
	first := []*harness.Replica{c.Start(t, "b1", "ZONE=b"), c.Start(t, "b2", "ZONE=b")}
	c.AwaitTick(t, harness.StartTimeout, "load", 0)
	for _, r := range first {
		r.Kill(t)
	}
	seen := c.History(t, "load")
	gone := harness.RedisTime(t, c.Client).Unix()
	last := c.AwaitTick(t, harness.StartTimeout, "extract", gone+9).Tick
	before.Kill(t)
	c.ForgetHistory(t)
	second := c.Start(t, "b3", "ZONE=b")
	sure := int64(0) // the last tick that has ended well for certain
	for _, l := range harness.LinesOf("end", c.Lines(t, "extract")) {
		if l.Tick < last && l.Tick%6 != 0 {
			sure = max(sure, l.Tick)
		}
	}
	c.AwaitRun(t, harness.StartTimeout, "load", "outcome of it", func(r harness.PastRun) bool { return r.Tick.Unix() >= sure })
	harness.Pass(t, time.Now().Add(time.Second))
	harness.StopAll(t, []*harness.Replica{second})

	told := map[int64]bool{}
	for _, r := range append(seen, c.History(t, "load")...) {
		told[r.Tick.Unix()] = true
	}
	harness.CheckChain(t, c.Lines(t, "extract"), c.Lines(t, "load"), func(end harness.Line) bool { return end.Tick < last }, told)
}

// A chain runs each tick once although a replica is killed again and again just when a run has ended, which is when
// it claims the job after it.
// Promise: P1, P6
func TestChainUnderKills(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, strings.NewReplacer(`zone = "a" }`, "}", `zone = "b" }`, "}").Replace(chainOfTwo)+`
[jobs.report]
after = ["load"]
command = '"$SCRIBE" -for 100ms'
`)
	replicas := map[string]*harness.Replica{}
	for _, r := range c.StartAll(t, 3) {
		replicas[r.Name] = r
	}
	killed := 0
	from := c.AwaitTick(t, harness.StartTimeout, "extract", 0).Tick
	for n := range 6 {
		tick := from + 2 + int64(4*n)
		end := c.Await(t, harness.StartTimeout, "extract", "end", func(l harness.Line) bool { return l.Event == "end" && l.Tick >= tick })
		if victim := replicas[end.Replica]; victim != nil {
			victim.Kill(t)
			killed++
			delete(replicas, end.Replica)
			r := c.Start(t, fmt.Sprintf("n%d", n))
			replicas[r.Name] = r
		}
	}
	until := harness.RedisTime(t, c.Client).Unix() + 30 // most ticks before that ran on a replica that was killed then, and are not compared; on a slow machine few of the others end well
	c.AwaitTick(t, harness.StartTimeout, "report", until+4)
	for _, r := range replicas {
		r.Term(t)
	}
	for _, r := range replicas {
		r.WantDrained(t)
	}
	ok := map[string]map[int64]bool{}
	told := map[string]map[int64]bool{}
	for _, job := range []string{"extract", "load", "report"} {
		ok[job], told[job] = map[int64]bool{}, map[int64]bool{}
		for _, r := range c.History(t, job) {
			ok[job][r.Tick.Unix()] = r.Outcome == "ok"
			told[job][r.Tick.Unix()] = true
		}
	}
	for _, link := range [][2]string{{"extract", "load"}, {"load", "report"}} {
		sure := func(end harness.Line) bool { // a run that was killed before it wrote its end has not ended well, and is recorded as abandoned
			return ok[link[0]][end.Tick] && end.Tick < until
		}
		harness.CheckChain(t, c.Lines(t, link[0]), c.Lines(t, link[1]), sure, told[link[1]])
	}
	if killed < 3 {
		t.Errorf("only %d replicas were killed", killed)
	}
}
