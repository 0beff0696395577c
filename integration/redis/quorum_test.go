package redis

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/locking/locktest"
)

var quorumFor = flag.Duration("quorum", 10*time.Second, "for how long TestReplicasArePromptWhileAMinorityHangs has two of five masters hung; it reports how late ticks are")

const promptJobs = `
[history]
runs = 1000
[defaults]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
start_deadline = "60s"
lease = "10s"

[jobs.a]
[jobs.b]
`

// muchTooLate is a lateness that no tick reaches, also on a slow machine that is busy with other things. The promise is a
// second: in simulated time, see package scheduler.
const muchTooLate = 45 * time.Second

// startQuorum starts three replicas on five masters that all vote, and waits until each job has run.
func startQuorum(t *testing.T) (c *harness.Cluster, servers []*harness.RedisServer, replicas []*harness.Replica) {
	t.Helper()
	c, servers = harness.NewQuorumCluster(t, promptJobs)
	replicas = c.StartAll(t, 3)
	for _, name := range harness.PromptNames {
		c.AwaitTick(t, harness.Soon, name, 0)
	}
	harness.AwaitVotes(t, servers)
	return c, servers, replicas
}

// tickDelays returns by how much runs of ticks from one to another began later than those, in order. A tick that came
// due before back was late only from then on.
func tickDelays(runs []harness.Line, from, to int64, back time.Time) (late []time.Duration, text string) {
	for _, l := range runs {
		if l.Tick < from || l.Tick > to {
			continue
		}
		due := time.Unix(l.Tick, 0)
		if due.Before(back) {
			due = back
		}
		late = append(late, l.At().Sub(due))
	}
	if len(late) == 0 {
		return nil, "no runs"
	}
	slices.Sort(late)
	at := func(p int) time.Duration { return late[(len(late)-1)*p/100].Round(time.Millisecond) }
	return late, fmt.Sprintf("%d ticks ran, late by p50 %v, p90 %v, p99 %v, at most %v", len(late), at(50), at(90), at(99), at(100))
}

// A quorum is prompt while a minority hangs. The test freezes two of five masters, those that are asked first.
// Promise: quorum
func TestReplicasArePromptWhileAMinorityHangs(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c, servers, replicas := startQuorum(t)
	for _, s := range servers[:2] {
		s.Pause()
	}
	from := harness.RedisTime(t, c.Client).Unix() + 1
	to := from + int64(quorumFor.Seconds())
	for _, name := range harness.PromptNames {
		c.AwaitTick(t, *quorumFor+harness.Soon, name, to)
	}
	for _, s := range servers[:2] {
		s.Unpause()
	}
	harness.StopAll(t, replicas)
	runs := harness.Starts(c.Lines(t, ""))
	harness.CheckOnce(t, runs, 1)
	harness.CheckNotEarly(t, runs)
	c.CheckTokensGrow(t, runs)
	c.CheckRan(t, from, to-2) // the last may be on their way
	_, before := tickDelays(runs, 0, from-1, time.Time{})
	late, text := tickDelays(runs, from, to, time.Time{})
	t.Logf("all masters there: %s", before)
	t.Logf("two hung: %s", text)
	if late[len(late)-1] > muchTooLate {
		t.Error("a tick is much too late")
	}
}

// A backlog of a quorum runs in order when the majority is back (P5). The test freezes a majority for seven seconds,
// five times.
// Promise: quorum
func TestQuorumBacklogIsPrompt(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const outage, rest = 7 * time.Second, 8 * time.Second
	c, servers, replicas := startQuorum(t)
	from := harness.RedisTime(t, c.Client).Unix() + 1
	for round := range 5 {
		for _, s := range servers[:3] {
			s.Pause()
		}
		down := harness.RedisTime(t, c.Client)
		harness.AwaitTime(t, c.Client, down.Add(outage))
		for _, s := range servers[:3] {
			s.Unpause()
		}
		back := harness.RedisTime(t, c.Client)
		harness.AwaitTime(t, c.Client, back.Add(rest))
		for _, name := range harness.PromptNames { // a busy machine may take longer than the rest
			c.AwaitTick(t, muchTooLate, name, back.Unix())
		}
		late, text := tickDelays(harness.Starts(c.Lines(t, "")), down.Unix()+1, back.Unix(), back)
		t.Logf("round %d: of %d that came due, after the return: %s", round+1, int64(len(harness.PromptNames))*(back.Unix()-down.Unix()), text)
		if len(late) == 0 || late[len(late)-1] > muchTooLate {
			t.Errorf("round %d: what waited is much too late", round+1)
		}
	}
	to := harness.RedisTime(t, c.Client).Unix() - 2
	for _, name := range harness.PromptNames {
		c.AwaitTick(t, muchTooLate, name, to)
	}
	harness.StopAll(t, replicas)
	runs := harness.Starts(c.Lines(t, ""))
	harness.CheckOnce(t, runs, 1)
	c.CheckTokensGrow(t, runs)
	c.CheckRan(t, from, to)
}

// A quorum of real Redis masters passes the conformance suite.
// Promise: quorum
func TestOnQuorum(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	servers := harness.Masters(t)
	locktest.RunQuorum(t, func(*testing.T) []redis.UniversalClient {
		var clients []redis.UniversalClient
		for _, s := range servers {
			clients = append(clients, redis.NewClient(harness.ClientOptions(s.Instance.Addr())))
		}
		return clients
	})
}

const quorumJobs = `
[history]
runs = 1000
[defaults]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
start_deadline = "10s"
lease = "2s"

[jobs.second]
[jobs.even]
schedule = "*/2 * * * * *"
`

// A quorum that loses a minority of its masters doubles no tick and leaves none without an outcome (P1, P2, P4, P6).
// The test kills one master and freezes another in turn, never more than a minority at once, and has two forget
// everything one after the other.
// Promise: quorum
func TestQuorumLosesNodes(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c, servers := harness.NewQuorumCluster(t, quorumJobs)
	replicas := c.StartAll(t, 3)
	from := max(c.AwaitTick(t, harness.Soon, "second", 0).Tick, c.AwaitTick(t, harness.Soon, "even", 0).Tick)
	ticks := func(n int64) {
		t.Helper()
		c.AwaitTick(t, 2*harness.Soon, "second", harness.RedisTime(t, c.Client).Unix()+n)
	}
	harness.AwaitVotes(t, servers)
	for i := range 2 {
		killed, frozen := servers[i], servers[(i+2)%len(servers)]
		killed.Kill()
		frozen.Pause()
		ticks(3)
		frozen.Unpause()
		killed.Start(harness.MemoryLost)
		harness.AwaitVote(t, killed)
	}
	for _, s := range servers[3:] {
		if err := s.Client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		ticks(1)
		harness.AwaitVote(t, s)
	}
	to := harness.RedisTime(t, c.Client).Unix()
	ticks(3)
	harness.StopAll(t, replicas)

	runs := harness.Starts(c.Lines(t, ""))
	harness.CheckOnce(t, runs, 1)
	harness.CheckNotEarly(t, runs)
	harness.CheckTokensGrowInSlots(t, runs)
	for job, period := range map[string]int64{"second": 1, "even": 2} {
		outcomes, count := harness.OutcomesOf(c.History(t, job)), map[string]int{}
		for tick := from; tick <= to; tick++ {
			if tick%period != 0 {
				continue
			}
			o := outcomes[tick]
			ran := slices.ContainsFunc(runs, func(l harness.Line) bool { return l.Job == job && l.Tick == tick })
			if len(o) != 1 || ran != (o[0].Outcome == "ok") {
				t.Errorf("job %s, tick %d: ran %v, outcomes %+v", job, tick, ran, o)
				continue
			}
			count[o[0].Verdict()]++
		}
		t.Logf("job %s: %v", job, count)
		if ok := count["ok"]; ok < int(to-from)/int(period)/5 { // on a slow machine many find the run before them
			t.Errorf("job %s: %d ticks ran", job, ok)
		}
	}
}

// A quorum without a majority grants nothing, and runs the ticks of that time later (P5). The test freezes three of
// five masters for a while.
// Promise: quorum
func TestQuorumWithoutAMajority(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const outage = 3 * time.Second
	c, servers := harness.NewQuorumCluster(t, quorumJobs)
	replicas := c.StartAll(t, 3)
	from := max(c.AwaitTick(t, harness.Soon, "second", 0).Tick, c.AwaitTick(t, harness.Soon, "even", 0).Tick)
	harness.AwaitVotes(t, servers)
	for _, s := range servers[:3] {
		s.Pause()
	}
	harness.AwaitTime(t, c.Client, harness.RedisTime(t, c.Client).Add(outage))
	for _, s := range servers[:3] {
		s.Unpause()
	}
	to := harness.RedisTime(t, c.Client).Unix()
	c.AwaitTick(t, 2*harness.Soon, "second", to+5)
	harness.StopAll(t, replicas)
	runs := harness.Starts(c.Lines(t, ""))
	harness.CheckOnce(t, runs, 1)
	c.CheckTokensGrow(t, runs)
	outcomes := harness.OutcomesOf(c.History(t, "second"))
	for tick := from; tick <= to; tick++ {
		if o := outcomes[tick]; len(o) != 1 {
			t.Errorf("tick %d: outcomes %+v", tick, o)
		}
	}
}
