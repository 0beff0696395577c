package integration

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"
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
[jobs.c]
[jobs.d]
`

var promptNames = []string{"a", "b", "c", "d"}

// muchTooLate is a lateness that no tick reaches, also on a machine that is busy with other things. The promise is a
// second: in simulated time, see package scheduler.
const muchTooLate = 15 * time.Second

// startQuorum starts three replicas on five masters that all vote, and waits until each job has run.
func startQuorum(t *testing.T) (c *cluster, servers []*redisServer, replicas []*replica) {
	t.Helper()
	c, servers = newQuorumCluster(t, promptJobs)
	replicas = c.startAll(t, 3)
	for _, name := range promptNames {
		c.awaitTick(t, soon, name, 0)
	}
	awaitVotes(t, servers)
	return c, servers, replicas
}

// tickDelays returns by how much runs of ticks from one to another began later than those, in order. A tick that came
// due before back was late only from then on.
func tickDelays(runs []line, from, to int64, back time.Time) (late []time.Duration, text string) {
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

// checkRan demands that the ticks of all jobs, from one to another, have one outcome each; and that is ok, or skipped where the run before was still on.
func (c *cluster) checkRan(t *testing.T, from, to int64) {
	t.Helper()
	for _, name := range promptNames {
		outcomes := outcomesOf(c.history(t, name))
		for tick := from; tick <= to; tick++ {
			if o := outcomes[tick]; len(o) != 1 || o[0].verdict() != "ok" && o[0].verdict() != "skipped overlap" {
				t.Errorf("job %s, tick %d: outcomes %+v", name, tick, o)
			}
		}
	}
}

// A quorum is prompt while a minority hangs. The test freezes two of five masters, those that are asked first.
// Promise: quorum
func TestReplicasArePromptWhileAMinorityHangs(t *testing.T) {
	slow(t)
	t.Parallel()
	c, servers, replicas := startQuorum(t)
	for _, s := range servers[:2] {
		s.Pause()
	}
	from := redisTime(t, c.Client).Unix() + 1
	to := from + int64(quorumFor.Seconds())
	for _, name := range promptNames {
		c.awaitTick(t, *quorumFor+soon, name, to)
	}
	for _, s := range servers[:2] {
		s.Unpause()
	}
	stopAll(t, replicas)
	runs := starts(c.lines(t, ""))
	checkOnce(t, runs, 1)
	checkNotEarly(t, runs)
	c.checkTokensGrow(t, runs)
	c.checkRan(t, from, to-2) // the last may be on their way
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
	slow(t)
	t.Parallel()
	const outage, rest = 7 * time.Second, 8 * time.Second
	c, servers, replicas := startQuorum(t)
	from := redisTime(t, c.Client).Unix() + 1
	for round := range 5 {
		for _, s := range servers[:3] {
			s.Pause()
		}
		down := redisTime(t, c.Client)
		awaitTime(t, c.Client, down.Add(outage))
		for _, s := range servers[:3] {
			s.Unpause()
		}
		back := redisTime(t, c.Client)
		awaitTime(t, c.Client, back.Add(rest))
		for _, name := range promptNames { // a busy machine may take longer than the rest
			c.awaitTick(t, muchTooLate, name, back.Unix())
		}
		late, text := tickDelays(starts(c.lines(t, "")), down.Unix()+1, back.Unix(), back)
		t.Logf("round %d: of %d that came due, after the return: %s", round+1, int64(len(promptNames))*(back.Unix()-down.Unix()), text)
		if len(late) == 0 || late[len(late)-1] > muchTooLate {
			t.Errorf("round %d: what waited is much too late", round+1)
		}
	}
	to := redisTime(t, c.Client).Unix() - 2
	for _, name := range promptNames {
		c.awaitTick(t, muchTooLate, name, to)
	}
	stopAll(t, replicas)
	runs := starts(c.lines(t, ""))
	checkOnce(t, runs, 1)
	c.checkTokensGrow(t, runs)
	c.checkRan(t, from, to)
}
