package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/locking/locktest"
)

// masters are five independent servers of one test.
func masters(t *testing.T) []*redisServer {
	t.Helper()
	all := make([]*redisServer, 5)
	for i := range all {
		all[i] = startRedis(t, redisOpts{})
	}
	return all
}

// A quorum of real Redis masters passes the conformance suite.
// Promise: quorum
func TestOnQuorum(t *testing.T) {
	slow(t)
	t.Parallel()
	servers := masters(t)
	locktest.RunQuorum(t, func(*testing.T) []redis.UniversalClient {
		var clients []redis.UniversalClient
		for _, s := range servers {
			clients = append(clients, redis.NewClient(clientOptions(s.instance.addr())))
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

// newQuorumCluster puts jobs on five masters, with a Redis for the history beside them.
func newQuorumCluster(t *testing.T, config string) (*cluster, []*redisServer) {
	t.Helper()
	servers := masters(t)
	return onQuorum(t, startRedis(t, redisOpts{}), urlsOf(servers), config), servers
}

func urlsOf(servers []*redisServer) (urls []string) {
	for _, s := range servers {
		urls = append(urls, s.URL)
	}
	return urls
}

// onQuorum puts jobs on masters, with a Redis for the history.
func onQuorum(t *testing.T, history *redisServer, urls []string, config string) *cluster {
	t.Helper()
	return clusterOn(t, "", history.Client, "it", fmt.Sprintf("[redis]\nurl = %q\nquorum = [\"%s\"]\n%s", history.URL, strings.Join(urls, `", "`), config))
}

// A quorum that loses a minority of its masters doubles no tick and leaves none without an outcome (P1, P2, P4, P6).
// The test kills one master and freezes another in turn, never more than a minority at once, and has two forget
// everything one after the other.
// Promise: quorum
func TestQuorumLosesNodes(t *testing.T) {
	slow(t)
	t.Parallel()
	c, servers := newQuorumCluster(t, quorumJobs)
	replicas := c.startAll(t, 3)
	from := max(c.awaitTick(t, soon, "second", 0).Tick, c.awaitTick(t, soon, "even", 0).Tick)
	ticks := func(n int64) {
		t.Helper()
		c.awaitTick(t, 2*soon, "second", redisTime(t, c.Client).Unix()+n)
	}
	awaitVotes(t, servers)
	for i := range 2 {
		killed, frozen := servers[i], servers[(i+2)%len(servers)]
		killed.Kill()
		frozen.Pause()
		ticks(3)
		frozen.Unpause()
		killed.Start(lost)
		awaitVote(t, killed)
	}
	for _, s := range servers[3:] {
		if err := s.Client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		ticks(1)
		awaitVote(t, s)
	}
	to := redisTime(t, c.Client).Unix()
	ticks(3)
	stopAll(t, replicas)

	runs := starts(c.lines(t, ""))
	checkOnce(t, runs, 1)
	checkNotEarly(t, runs)
	checkTokensGrowInSlots(t, runs)
	for job, period := range map[string]int64{"second": 1, "even": 2} {
		outcomes, count := outcomesOf(c.history(t, job)), map[string]int{}
		for tick := from; tick <= to; tick++ {
			if tick%period != 0 {
				continue
			}
			o := outcomes[tick]
			ran := slices.ContainsFunc(runs, func(l line) bool { return l.Job == job && l.Tick == tick })
			if len(o) != 1 || ran != (o[0].Outcome == "ok") {
				t.Errorf("job %s, tick %d: ran %v, outcomes %+v", job, tick, ran, o)
				continue
			}
			count[o[0].verdict()]++
		}
		t.Logf("job %s: %v", job, count)
		if ok := count["ok"]; ok < int(to-from)/int(period)/2 { // on a slow machine some find the run before them
			t.Errorf("job %s: %d ticks ran", job, ok)
		}
	}
}

// awaitVotes waits until all masters vote: on a busy machine one may join later than the others.
func awaitVotes(t *testing.T, servers []*redisServer) {
	t.Helper()
	for _, s := range servers {
		awaitVote(t, s)
	}
}

// awaitVote waits until a master that has forgotten votes again: after the longest lease, that of the leadership.
func awaitVote(t *testing.T, s *redisServer) {
	t.Helper()
	eventually(t, 2*soon, "the master votes again", func() bool { return s.votes(t) })
}

func (s *redisServer) votes(t *testing.T) bool {
	t.Helper()
	return s.Client.HGet(t.Context(), "cronclave:it:quorum", "state").Val() == "voting"
}

// A quorum without a majority grants nothing, and runs the ticks of that time later (P5). The test freezes three of
// five masters for a while.
// Promise: quorum
func TestQuorumWithoutAMajority(t *testing.T) {
	slow(t)
	t.Parallel()
	const outage = 3 * time.Second
	c, servers := newQuorumCluster(t, quorumJobs)
	replicas := c.startAll(t, 3)
	from := max(c.awaitTick(t, soon, "second", 0).Tick, c.awaitTick(t, soon, "even", 0).Tick)
	awaitVotes(t, servers)
	for _, s := range servers[:3] {
		s.Pause()
	}
	awaitTime(t, c.Client, redisTime(t, c.Client).Add(outage))
	for _, s := range servers[:3] {
		s.Unpause()
	}
	to := redisTime(t, c.Client).Unix()
	c.awaitTick(t, 2*soon, "second", to+5)
	stopAll(t, replicas)
	runs := starts(c.lines(t, ""))
	checkOnce(t, runs, 1)
	c.checkTokensGrow(t, runs)
	outcomes := outcomesOf(c.history(t, "second"))
	for tick := from; tick <= to; tick++ {
		if o := outcomes[tick]; len(o) != 1 {
			t.Errorf("tick %d: outcomes %+v", tick, o)
		}
	}
}
