package cluster

import (
	"strings"
	"testing"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

const everywhereJobs = `
[history]
runs = 1000
[defaults]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
start_deadline = "3s"
lease = "2s"

[jobs.tidy]
per_tick = "all"
`

// Each tick of a job with per_tick = "all" runs once on each replica. The ticks of a replica that dies are missed, and the others go on. One that joins runs
// only later ticks. A pause of the job holds for all of them, and for one that joins during it.
// Promise: P1, P6
func TestEachReplicaRunsEachTick(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, everywhereJobs)
	replicas := c.StartAll(t, 3)
	var latest int64
	for _, r := range []string{"r1", "r2", "r3"} {
		latest = max(latest, c.AwaitTick(t, 2*harness.Soon, "tidy@"+r, 0).Tick)
	}
	for _, r := range []string{"r1", "r2", "r3"} {
		last := c.AwaitTick(t, 2*harness.Soon, "tidy@"+r, latest+5).Tick
		c.CheckTicks(t, "tidy@"+r, latest+1, last-1, 1)
	}
	replicas[2].Kill(t)
	killed := harness.RedisTime(t, c.Client).Unix()
	c.AwaitRun(t, 2*harness.Soon, "tidy@r3", "a missed tick long after the death", func(p harness.PastRun) bool {
		return p.Tick.Unix() >= killed+20 && p.Verdict() == "missed down"
	})
	c.AwaitTick(t, harness.Soon, "tidy@r1", killed+20)
	for tick, past := range harness.OutcomesOf(c.History(t, "tidy@r3")) {
		if tick > killed && tick < killed+20 && (len(past) != 1 || past[0].Verdict() != "missed down") {
			t.Errorf("tick %d after the death: %+v", tick-killed, past)
		}
	}
	c.CheckTicks(t, "tidy@r1", killed, killed+19, 1)

	before := harness.RedisTime(t, c.Client).Unix()
	replicas[2] = c.Start(t, "r4.example")
	joined := c.AwaitTick(t, 2*harness.Soon, "tidy@r4.example", 0).Tick
	c.AwaitTick(t, harness.Soon, "tidy@r4.example", joined+3)
	if joined <= before {
		t.Errorf("the joiner ran tick %d, and it came after tick %d", joined, before)
	}

	c.Command(t, "pause", "tidy", "--reason", "disks").Want(t, 0, "paused tidy@r4.example until it is resumed: disks\n")
	paused := harness.RedisTime(t, c.Client).Unix()
	replicas = append(replicas, c.Start(t, "r5"))
	for _, r := range []string{"r1", "r2", "r4.example", "r5"} {
		c.AwaitRun(t, 2*harness.Soon, "tidy@"+r, "a skipped tick", func(p harness.PastRun) bool {
			return p.Tick.Unix() > paused+1 && p.Verdict() == "skipped paused"
		})
	}
	c.Command(t, "status", "tidy").Want(t, 2, "name one of its instances: tidy@r1, tidy@r2, tidy@r3, tidy@r4.example, tidy@r5")
	c.Command(t, "resume", "tidy").Want(t, 0, "resumed tidy@r5")
	resumed := harness.RedisTime(t, c.Client).Unix()
	for _, r := range []string{"r1", "r2", "r4.example", "r5"} {
		c.AwaitTick(t, 2*harness.Soon, "tidy@"+r, resumed+1)
	}
	triggered := c.Command(t, "trigger", "tidy")
	for tries := 1; triggered.Code != 0 && strings.Contains(triggered.Stderr, "skipped: overlap") && tries < 10; tries++ { // a tick of each second may be under way
		triggered = c.Command(t, "trigger", "tidy")
	}
	triggered.Want(t, 0, "started by replica r4.example")
	harness.StopAll(t, replicas)
	runs := harness.Starts(c.Lines(t, ""))
	for _, l := range runs {
		if l.Job != "tidy@"+l.Replica {
			t.Errorf("it ran elsewhere: %v", l)
		}
		if l.Trigger == "schedule" && l.Tick > paused && l.Tick < resumed {
			t.Errorf("a run of paused time: %v", l)
		}
	}
	scheduled := runs[:0]
	for _, l := range runs {
		if l.Trigger == "schedule" {
			scheduled = append(scheduled, l)
		}
	}
	harness.CheckOnce(t, scheduled, 1)
}
