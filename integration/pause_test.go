package integration

import (
	"testing"
	"time"
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

// pausedAt is since when a job is paused, by status; 0 if it is not.
func (c *cluster) pausedAt(t *testing.T, job, reason string) int64 {
	t.Helper()
	for _, j := range c.status(t).Jobs {
		if j.Name != job || !j.Paused {
			continue
		}
		if j.PausedReason != reason || j.PausedUntil != nil {
			t.Errorf("%+v", j)
		}
		return j.PausedSince.UnixMicro()
	}
	return 0
}

// checkPaused demands that no tick after an instant and before another one ran, and that each that came due after known was skipped, once.
func (c *cluster) checkPaused(t *testing.T, since, known, until int64) {
	t.Helper()
	for _, l := range starts(c.lines(t, "stopped")) {
		if at := l.Tick * 1e6; at > since && at < until {
			t.Errorf("a run of paused time: %v", l)
		}
	}
	outcomes := outcomesOf(c.history(t, "stopped"))
	for tick := known/1e6 + 1; tick*1e6 < until; tick++ {
		if past := outcomes[tick]; len(past) != 1 || past[0].verdict() != "skipped paused" {
			t.Errorf("tick %d, %v after the pause: %+v", tick, time.Duration(tick*1e6-since)*time.Microsecond, past)
		}
	}
}

// A paused job stays paused until it is resumed, although Redis loses its data (P6). Its ticks are skipped, and the
// other job runs on.
// Promise: P6
func TestPause(t *testing.T) {
	t.Parallel()
	s := startRedis(t, redisOpts{})
	c := newClusterOn(t, s, pauseJobs)
	replicas := c.startAll(t, 3)
	c.awaitTick(t, soon, "stopped", 0)
	c.awaitTick(t, soon, "free", 0)
	c.command(t, "pause", "--tag", "db", "--reason", "an upgrade").want(t, 0, "paused stopped until it is resumed: an upgrade\n")
	since := c.pausedAt(t, "stopped", "an upgrade")
	c.awaitTick(t, soon, "free", since/1e6+3)
	until := redisTime(t, c.Client).Unix()
	eventually(t, soon, "outcome of each tick", func() bool {
		outcomes := outcomesOf(c.history(t, "stopped"))
		for tick := since/1e6 + 1; tick < until; tick++ {
			if len(outcomes[tick]) == 0 {
				return false
			}
		}
		return true
	})
	c.checkPaused(t, since, since, until*1e6)

	must(t, s.Client.FlushAll(t.Context()).Err())
	forgotten := redisTime(t, c.Client)
	c.awaitTick(t, 2*soon, "free", forgotten.Unix()+4)
	eventually(t, soon, "the jobs are described again", func() bool { return len(c.status(t).Jobs) == 2 })
	if again := c.pausedAt(t, "stopped", "an upgrade"); again != since {
		t.Errorf("paused since %d, and after the loss since %d", since, again)
	}
	resumed := redisTime(t, c.Client).UnixMicro()
	c.command(t, "resume", "--all").want(t, 0, "free was not paused\nresumed stopped\n")
	c.awaitTick(t, soon, "stopped", redisTime(t, c.Client).Unix()+1)
	stopAll(t, replicas)
	c.checkPaused(t, since, forgotten.UnixMicro(), resumed)
	checkOnce(t, starts(c.lines(t, "")), 1)
	if c.pausedAt(t, "stopped", "") != 0 {
		t.Error("it is paused after the end")
	}
}

// insist repeats a command while its outcome is unknown, as it asks people to: with three masters of five left,
// claims may be in its way.
func (c *cluster) insist(t *testing.T, args ...string) (last commandLine) {
	t.Helper()
	const unavailable = 69
	eventually(t, startTimeout, "answer to "+args[0], func() bool {
		last = c.command(t, args...)
		return last.code != unavailable
	})
	return last
}

// A pause on five masters holds when two of them are gone at the moment of the pause and two others when it counts.
// Promise: P6
func TestPauseOnAQuorum(t *testing.T) {
	slow(t)
	t.Parallel()
	c, servers := newQuorumCluster(t, pauseJobs)
	replicas := c.startAll(t, 2)
	c.awaitTick(t, soon, "stopped", 0)
	awaitVotes(t, servers)
	freeze := func(some ...*redisServer) (thaw func()) {
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
	c.insist(t, "pause", "stopped", "--reason", "why").want(t, 0, "paused stopped")
	thaw()
	since := c.pausedAt(t, "stopped", "why")
	thaw = freeze(servers[3], servers[4])
	c.awaitTick(t, 2*soon, "free", redisTime(t, c.Client).Unix()+4)
	resumed := redisTime(t, c.Client).UnixMicro()
	c.insist(t, "resume", "stopped").want(t, 0, "stopped") // resumed, or found to be
	thaw()
	c.awaitTick(t, 2*soon, "stopped", redisTime(t, c.Client).Unix()+1)
	stopAll(t, replicas)
	c.checkPaused(t, since, since, resumed)
	checkOnce(t, starts(c.lines(t, "")), 1)
}
