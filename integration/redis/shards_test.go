package redis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// Resharding loses no tick and no lease, and runs no tick twice (P1, P3, P4, P5). The test moves the slots of jobs
// while they run, from node to node and to one that had none.
// Promise: P1, P4, P5
func TestResharding(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := harness.StartCluster(t)
	c := harness.NewClusterAt(t, s.URL, everyTick)
	replicas := c.StartAll(t, 5)
	if e := replicas[0].WaitLog(t, harness.Soon, "announcement", harness.Announced); e["redis"] != s.URL {
		t.Errorf("announced %v, want %s", e["redis"], s.URL)
	}
	first := max(c.AwaitTick(t, harness.Soon, "a", 0).Tick, c.AwaitTick(t, harness.Soon, "b", 0).Tick)
	c.AwaitTick(t, harness.Soon, "long", 0)
	fresh := harness.StartNode(t)
	s.Join(t, fresh)
	s.AwaitWhole(t)

	began := harness.RedisTime(t, c.Client)
	tick := began.Unix()
	for _, to := range []*harness.RedisServer{fresh, s.Nodes[0]} {
		for _, job := range []string{"a", "b", "long"} {
			slot := int(harness.Must1(fresh.Client.ClusterKeySlot(t.Context(), job).Result())(t))
			s.Move(t, slot, to, func() { // a tick comes due meanwhile
				harness.AwaitTime(t, c.Client, time.Unix(harness.RedisTime(t, c.Client).Unix()+1, 300_000_000))
			})
			tick = c.AwaitTick(t, harness.StartTimeout, "a", tick+1).Tick
		}
	}
	last := harness.RedisTime(t, c.Client).Unix() + 2
	for _, job := range []string{"a", "b"} {
		c.AwaitTick(t, harness.StartTimeout, job, last)
	}
	c.Status(t)
	c.AwaitTick(t, harness.StartTimeout, "long", last)
	checkNothingLost(t, c, []string{"a", "b"}, first, last, time.Unix(0, 0)) // a slot may be away, never what it held
	harness.StopAll(t, replicas)

	runs := harness.Starts(c.Lines(t, ""))
	harness.CheckOnce(t, runs, 1)
	harness.CheckNotEarly(t, runs)
	c.CheckTokensGrow(t, runs)
	harness.CheckAlone(t, c.Lines(t, "long"))
	for _, r := range c.History(t, "long") {
		if r.Outcome != "ok" && r.Verdict() != "skipped overlap" && r.Verdict() != "canceled drain" {
			t.Errorf("a long run, or its lease, did not outlast the move: %+v", r)
		}
	}
	t.Logf("6 moves in %v; %d runs; lateness: %s", harness.RedisTime(t, c.Client).Sub(began).Round(time.Second), len(runs), harness.Lateness(runs))
}

// A Cluster node that loses its data is restored although no tick is due for long (P1, P3). It has neither the entry
// of the only replica nor the leader's lock; the replica notices all the same, and announces all jobs.
// Promise: P1, P3
func TestForgottenNodeIsKnownAgainWithoutATick(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const registerEvery = 5 * time.Second
	s := harness.StartCluster(t)
	var config strings.Builder
	jobs := map[*harness.RedisServer]string{}
	for i := 0; len(jobs) < len(s.Nodes); i++ {
		job := fmt.Sprintf("rare-%d", i)
		slot := int(harness.Must1(s.Nodes[0].Client.ClusterKeySlot(t.Context(), job).Result())(t))
		if node := s.Owner(t, slot); jobs[node] == "" {
			jobs[node] = job
			fmt.Fprintf(&config, "[jobs.%s]\nschedule = \"0 0 29 2 *\"\ncommand = [\"true\"]\nlease = \"5m\"\n", job)
		}
	}
	c := harness.NewClusterAt(t, s.URL, config.String())
	for _, job := range jobs {
		c.Command(t, "exec", job).Want(t, 0, "")
	}
	replicas := c.StartAll(t, 1)
	harness.Eventually(t, harness.Soon, "replica in status", func() bool { return len(c.Status(t).Replicas) == 1 })
	harness.Eventually(t, harness.Soon, "leader", func() bool { return c.Status(t).Leader != nil }) // the leader inspects all jobs once a minute
	has := func(n *harness.RedisServer, pattern string) bool {
		return len(harness.Must1(n.Client.Keys(t.Context(), pattern).Result())(t)) > 0
	}
	victim := s.Nodes[slices.IndexFunc(s.Nodes, func(n *harness.RedisServer) bool {
		return !has(n, "cronclave:it:replica:*") && !has(n, "cronclave:it:{leader}*")
	})]
	lock := "cronclave:it:{" + jobs[victim] + "}:job*"
	harness.Eventually(t, registerEvery+harness.Soon, "first look around", func() bool { return has(victim, "cronclave:it:canary:*") })
	harness.Must(t, victim.Client.FlushAll(t.Context()).Err())
	harness.Eventually(t, registerEvery+harness.Soon, "lock of the job", func() bool { return has(victim, lock) })
	c.Command(t, "exec", jobs[victim]).Want(t, 75, "Redis lost the lock's data")
	harness.StopAll(t, replicas)
}

// A registration is done while the master of a Cluster hangs that has the epoch of the data, and not the registration: the replica goes on to look at
// the other masters.
// Promise: P1
func TestReplicaRegistersWhileTheMasterOfTheEpochHangs(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := harness.StartCluster(t, "--cluster-node-timeout", "60000")
	owner := func(key string) *harness.RedisServer {
		return s.Owner(t, int(harness.Must1(s.Nodes[0].Client.ClusterKeySlot(t.Context(), key).Result())(t)))
	}
	victim := owner("cronclave:it:epoch")
	if owner("cronclave:it:replicas") == victim {
		t.Fatal("the list of replicas has the same master: name the test's namespace otherwise")
	}
	c := harness.NewClusterAt(t, s.URL, "[jobs.rare]\nschedule = \"0 0 29 2 *\"\ncommand = [\"true\"]\n")
	registeredElsewhere := func() bool {
		return slices.ContainsFunc(s.Nodes, func(n *harness.RedisServer) bool {
			return n != victim && len(harness.Must1(n.Client.Keys(t.Context(), "cronclave:it:replica:*").Result())(t)) > 0
		})
	}
	var replicas []*harness.Replica
	for len(replicas) == 0 || !registeredElsewhere() { // each is on the master in question with a chance of a third
		if len(replicas) == 16 {
			t.Fatal("all of 16 replicas are registered on the master in question")
		}
		replicas = append(replicas, c.Start(t, fmt.Sprint("r", len(replicas)+1)))
		harness.Eventually(t, harness.StartTimeout, "replicas in status", func() bool { return len(c.Status(t).Replicas) == len(replicas) })
	}
	var node *harness.RedisServer
	var canary string
	harness.Eventually(t, harness.StartTimeout, "a registration elsewhere", func() bool {
		for _, n := range s.Nodes {
			entries := n.Client.Keys(t.Context(), "cronclave:it:replica:*").Val()
			if n == victim || len(entries) == 0 {
				continue
			}
			id := strings.TrimPrefix(entries[0], "cronclave:it:replica:")
			if keys := n.Client.Keys(t.Context(), "cronclave:it:canary:"+id+":*").Val(); len(keys) > 0 {
				node, canary = n, keys[0]
			}
		}
		return node != nil
	})
	victim.Pause()
	defer victim.Unpause()
	renewed, left := 0, time.Duration(0)
	harness.Eventually(t, harness.StartTimeout, "two renewals", func() bool {
		now := harness.Must1(node.Client.PTTL(t.Context(), canary).Result())(t)
		if now > left+time.Second && left > 0 {
			renewed++
		}
		left = now
		return renewed == 2
	})
	if left < 8*time.Second {
		t.Errorf("renewed late: %v are left", left)
	}
	victim.Unpause()
	harness.StopAll(t, replicas)
}
