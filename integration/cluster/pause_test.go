package cluster

import (
	"testing"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

const pauseJobs = `
[history]
runs = 1000
[defaults]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
start_deadline = "10s"
lease = "2s"

[jobs.stopped]
tags = ["db"]
[jobs.free]
`

// A paused job stays paused until it is resumed, although Redis loses its data (P6). Its ticks are skipped, and the
// other job runs on.
// Promise: P6
func TestPause(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := harness.StartRedis(t, harness.RedisOpts{})
	c := harness.NewClusterOn(t, s, pauseJobs)
	replicas := c.StartAll(t, 3)
	c.AwaitTick(t, harness.Soon, "stopped", 0)
	c.AwaitTick(t, harness.Soon, "free", 0)
	c.Command(t, "pause", "--tag", "db", "--reason", "an upgrade").Want(t, 0, "paused stopped until it is resumed: an upgrade\n")
	since := c.PausedAt(t, "stopped", "an upgrade")
	c.AwaitTick(t, harness.Soon, "free", since/1e6+3)
	until := harness.RedisTime(t, c.Client).Unix()
	harness.Eventually(t, harness.Soon, "outcome of each tick", func() bool {
		outcomes := harness.OutcomesOf(c.History(t, "stopped"))
		for tick := since/1e6 + 1; tick < until; tick++ {
			if len(outcomes[tick]) == 0 {
				return false
			}
		}
		return true
	})
	c.CheckPaused(t, since, since, until*1e6)

	harness.Must(t, s.Client.FlushAll(t.Context()).Err())
	forgotten := harness.RedisTime(t, c.Client)
	c.AwaitTick(t, 2*harness.Soon, "free", forgotten.Unix()+4)
	harness.Eventually(t, harness.Soon, "the jobs are described again", func() bool { return len(c.Status(t).Jobs) == 2 })
	if again := c.PausedAt(t, "stopped", "an upgrade"); again != since {
		t.Errorf("paused since %d, and after the loss since %d", since, again)
	}
	resumed := harness.RedisTime(t, c.Client).UnixMicro()
	c.Command(t, "resume", "--all").Want(t, 0, "free was not paused\nresumed stopped\n")
	c.AwaitTick(t, harness.Soon, "stopped", harness.RedisTime(t, c.Client).Unix()+1)
	harness.StopAll(t, replicas)
	c.CheckPaused(t, since, forgotten.UnixMicro(), resumed)
	harness.CheckOnce(t, harness.Starts(c.Lines(t, "")), 1)
	if c.PausedAt(t, "stopped", "") != 0 {
		t.Error("it is paused after the end")
	}
}

// A pause on five masters holds when two of them are gone at the moment of the pause and two others when it counts.
// Promise: P6
func TestPauseOnAQuorum(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c, servers := harness.NewQuorumCluster(t, pauseJobs)
	replicas := c.StartAll(t, 2)
	c.AwaitTick(t, harness.Soon, "stopped", 0)
	harness.AwaitVotes(t, servers)
	freeze := func(some ...*harness.RedisServer) (thaw func()) {
		for _, s := range some {
			s.Pause()
		}
		return func() {
			for _, s := range some {
				s.Unpause()
			}
		}
	}
	thaw := freeze(servers[0], servers[1])
	c.Insist(t, "pause", "stopped", "--reason", "why").Want(t, 0, "paused stopped")
	thaw()
	since := c.PausedAt(t, "stopped", "why")
	thaw = freeze(servers[3], servers[4])
	c.AwaitTick(t, 2*harness.Soon, "free", harness.RedisTime(t, c.Client).Unix()+4)
	resumed := harness.RedisTime(t, c.Client).UnixMicro()
	c.Insist(t, "resume", "stopped").Want(t, 0, "stopped") // resumed, or found to be
	thaw()
	c.AwaitTick(t, 2*harness.Soon, "stopped", harness.RedisTime(t, c.Client).Unix()+1)
	harness.StopAll(t, replicas)
	c.CheckPaused(t, since, since, resumed)
	harness.CheckOnce(t, harness.Starts(c.Lines(t, "")), 1)
}
