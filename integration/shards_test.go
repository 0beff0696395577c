package integration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// shards is a Cluster of masters, processes on this machine.
type shards struct {
	nodes []*redisServer
	URL   string
}

// nodeProgram makes nodes of a Cluster.
type nodeProgram struct{ redisProgram }

// busOffset is how far the port of a Cluster's bus is above a node's own.
const busOffset = 10_000

func (s nodeProgram) create(args []string) (redisInstance, error) {
	for {
		instance, err := s.redisProgram.create(args)
		if err != nil || instance.(*redisProcess).port+busOffset < 1<<16 {
			return instance, err
		}
		if err := instance.remove(context.Background()); err != nil {
			return nil, err
		}
	}
}

func startNode(t *testing.T, options ...string) *redisServer {
	t.Helper()
	args := append(slices.Clone(persistent), "--cluster-enabled", "yes", "--cluster-node-timeout", "5000")
	return startFrom(t, nodeProgram{mustProgram(t)}, append(args, options...))
}

// startCluster returns when all of three nodes answer for all slots.
func startCluster(t *testing.T, options ...string) *shards {
	t.Helper()
	const slots, count = 16384, 3
	c := &shards{}
	var addrs []string
	for i := range count {
		n := startNode(t, options...)
		must(t, n.Client.ClusterAddSlotsRange(t.Context(), i*slots/count, (i+1)*slots/count-1).Err())
		must(t, n.Client.Do(t.Context(), "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		c.join(t, n)
		addrs = append(addrs, n.instance.addr())
	}
	c.URL = "redis-cluster://" + strings.Join(addrs, ",")
	c.awaitWhole(t)
	return c
}

// join makes a node one of the Cluster.
func (c *shards) join(t *testing.T, n *redisServer) {
	t.Helper()
	if len(c.nodes) > 0 {
		host, port, _ := strings.Cut(c.nodes[0].instance.addr(), ":")
		must(t, n.Client.ClusterMeet(t.Context(), host, port).Err())
	}
	c.nodes = append(c.nodes, n)
}

// awaitWhole waits until all nodes know each other, and the owners of all slots.
func (c *shards) awaitWhole(t *testing.T) {
	t.Helper()
	want := fmt.Sprintf("cluster_known_nodes:%d\r\n", len(c.nodes))
	eventually(t, startTimeout, "whole Cluster", func() bool {
		return !slices.ContainsFunc(c.nodes, func(n *redisServer) bool {
			info, err := n.Client.ClusterInfo(t.Context()).Result()
			return err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, want)
		})
	})
}

// client returns one that goes by the Cluster's rules.
func (c *shards) client(t *testing.T) *redis.ClusterClient {
	t.Helper()
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.instance.addr())
	}
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
}

// owner is the node that has a slot.
func (c *shards) owner(t *testing.T, slot int) *redisServer {
	t.Helper()
	ranges := must1(c.nodes[0].Client.Do(t.Context(), "CLUSTER", "SLOTS").Slice())(t)
	for _, r := range ranges { // first slot, last slot, master, replicas; of a node: host, port ...
		r := r.([]any)
		port := r[2].([]any)[1].(int64)
		for _, n := range c.nodes {
			if r[0].(int64) <= int64(slot) && int64(slot) <= r[1].(int64) && portOf(n.instance.addr()) == strconv.FormatInt(port, 10) {
				return n
			}
		}
	}
	t.Fatalf("slot %d has no owner", slot)
	return nil
}

func (c *shards) id(t *testing.T, n *redisServer) string {
	t.Helper()
	return must1(n.Client.ClusterMyID(t.Context()).Result())(t)
}

// move hands a slot over, as redis-cli --cluster reshard does. between is called when half of the slot's keys have moved: scripts
// are refused then (TRYAGAIN), since they see only a part of their keys. It is called again when all have, and the other nodes
// have not heard of it yet (ASK).
func (c *shards) move(t *testing.T, slot int, to *redisServer, between func()) {
	t.Helper()
	from := c.owner(t, slot)
	if from == to {
		return
	}
	must(t, setSlot(t, to, slot, "IMPORTING", c.id(t, from)))
	must(t, setSlot(t, from, slot, "MIGRATING", c.id(t, to)))
	half := (must1(from.Client.ClusterCountKeysInSlot(t.Context(), slot).Result())(t) + 1) / 2
	moved := int64(0)
	for {
		keys := must1(from.Client.ClusterGetKeysInSlot(t.Context(), slot, 1).Result())(t)
		if len(keys) == 0 {
			break
		}
		host, port, _ := strings.Cut(to.instance.addr(), ":")
		must(t, from.Client.Do(t.Context(), "MIGRATE", host, port, keys[0], 0, 5000).Err())
		if moved++; moved == half {
			between()
		}
	}
	between()
	must(t, setSlot(t, to, slot, "NODE", c.id(t, to)))
	for _, n := range c.nodes { // a node without a slot may be a replica by now, which hears of it anyway
		if err := setSlot(t, n, slot, "NODE", c.id(t, to)); err != nil && !strings.Contains(err.Error(), "only with masters") {
			t.Fatal(err)
		}
	}
}

func setSlot(t *testing.T, n *redisServer, slot int, how, node string) error {
	return n.Client.Do(t.Context(), "CLUSTER", "SETSLOT", slot, how, node).Err()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must1[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// Resharding loses no tick and no lease, and runs no tick twice (P1, P3, P4, P5). The test moves the slots of jobs
// while they run, from node to node and to one that had none.
// Promise: P1, P4, P5
func TestResharding(t *testing.T) {
	slow(t)
	t.Parallel()
	s := startCluster(t)
	c := newClusterAt(t, s.URL, everyTick)
	replicas := c.startAll(t, 5)
	if e := replicas[0].WaitLog(t, soon, "announcement", announced); e["redis"] != s.URL {
		t.Errorf("announced %v, want %s", e["redis"], s.URL)
	}
	first := max(c.awaitTick(t, soon, "a", 0).Tick, c.awaitTick(t, soon, "b", 0).Tick)
	c.awaitTick(t, soon, "long", 0)
	fresh := startNode(t)
	s.join(t, fresh)
	s.awaitWhole(t)

	began := redisTime(t, c.Client)
	tick := began.Unix()
	for _, to := range []*redisServer{fresh, s.nodes[0]} {
		for _, job := range []string{"a", "b", "long"} {
			slot := int(must1(fresh.Client.ClusterKeySlot(t.Context(), job).Result())(t))
			s.move(t, slot, to, func() { // a tick comes due meanwhile
				awaitTime(t, c.Client, time.Unix(redisTime(t, c.Client).Unix()+1, 300_000_000))
			})
			tick = c.awaitTick(t, startTimeout, "a", tick+1).Tick
		}
	}
	last := redisTime(t, c.Client).Unix() + 2
	for _, job := range []string{"a", "b"} {
		c.awaitTick(t, startTimeout, job, last)
	}
	c.status(t)
	c.awaitTick(t, startTimeout, "long", last)
	checkNothingLost(t, c, []string{"a", "b"}, first, last, time.Unix(0, 0)) // a slot may be away, never what it held
	stopAll(t, replicas)

	runs := starts(c.lines(t, ""))
	checkOnce(t, runs, 1)
	checkNotEarly(t, runs)
	c.checkTokensGrow(t, runs)
	checkAlone(t, c.lines(t, "long"))
	for _, r := range c.history(t, "long") {
		if r.Outcome != "ok" && r.verdict() != "skipped overlap" && r.verdict() != "canceled drain" {
			t.Errorf("a long run, or its lease, did not outlast the move: %+v", r)
		}
	}
	t.Logf("6 moves in %v; %d runs; lateness: %s", redisTime(t, c.Client).Sub(began).Round(time.Second), len(runs), lateness(runs))
}

// A Cluster node that loses its data is restored although no tick is due for long (P1, P3). It has neither the entry
// of the only replica nor the leader's lock; the replica notices all the same, and announces all jobs.
// Promise: P1, P3
func TestForgottenNodeIsKnownAgainWithoutATick(t *testing.T) {
	slow(t)
	t.Parallel()
	const registerEvery = 5 * time.Second
	s := startCluster(t)
	var config strings.Builder
	jobs := map[*redisServer]string{}
	for i := 0; len(jobs) < len(s.nodes); i++ {
		job := fmt.Sprintf("rare-%d", i)
		slot := int(must1(s.nodes[0].Client.ClusterKeySlot(t.Context(), job).Result())(t))
		if node := s.owner(t, slot); jobs[node] == "" {
			jobs[node] = job
			fmt.Fprintf(&config, "[jobs.%s]\nschedule = \"0 0 29 2 *\"\ncommand = [\"true\"]\nlease = \"5m\"\n", job)
		}
	}
	c := newClusterAt(t, s.URL, config.String())
	for _, job := range jobs {
		c.command(t, "exec", job).want(t, 0, "")
	}
	replicas := c.startAll(t, 1)
	eventually(t, soon, "replica in status", func() bool { return len(c.status(t).Replicas) == 1 })
	eventually(t, soon, "leader", func() bool { return c.status(t).Leader != nil }) // the leader inspects all jobs once a minute
	has := func(n *redisServer, pattern string) bool {
		return len(must1(n.Client.Keys(t.Context(), pattern).Result())(t)) > 0
	}
	victim := s.nodes[slices.IndexFunc(s.nodes, func(n *redisServer) bool {
		return !has(n, "cronclave:it:replica:*") && !has(n, "cronclave:it:{leader}*")
	})]
	lock := "cronclave:it:{" + jobs[victim] + "}:job*"
	eventually(t, registerEvery+soon, "first look around", func() bool { return has(victim, "cronclave:it:canary:*") })
	must(t, victim.Client.FlushAll(t.Context()).Err())
	eventually(t, registerEvery+soon, "lock of the job", func() bool { return has(victim, lock) })
	c.command(t, "exec", jobs[victim]).want(t, 75, "Redis lost the lock's data")
	stopAll(t, replicas)
}

// A registration is done while the master of a Cluster hangs that has the epoch of the data, and not the registration: the replica goes on to look at
// the other masters.
// Promise: P1
func TestReplicaRegistersWhileTheMasterOfTheEpochHangs(t *testing.T) {
	slow(t)
	t.Parallel()
	s := startCluster(t, "--cluster-node-timeout", "60000")
	owner := func(key string) *redisServer {
		return s.owner(t, int(must1(s.nodes[0].Client.ClusterKeySlot(t.Context(), key).Result())(t)))
	}
	victim := owner("cronclave:it:epoch")
	if owner("cronclave:it:replicas") == victim {
		t.Fatal("the list of replicas has the same master: name the test's namespace otherwise")
	}
	c := newClusterAt(t, s.URL, "[jobs.rare]\nschedule = \"0 0 29 2 *\"\ncommand = [\"true\"]\n")
	registeredElsewhere := func() bool {
		return slices.ContainsFunc(s.nodes, func(n *redisServer) bool {
			return n != victim && len(must1(n.Client.Keys(t.Context(), "cronclave:it:replica:*").Result())(t)) > 0
		})
	}
	var replicas []*replica
	for len(replicas) == 0 || !registeredElsewhere() { // each is on the master in question with a chance of a third
		if len(replicas) == 16 {
			t.Fatal("all of 16 replicas are registered on the master in question")
		}
		replicas = append(replicas, c.start(t, fmt.Sprint("r", len(replicas)+1)))
		eventually(t, startTimeout, "replicas in status", func() bool { return len(c.status(t).Replicas) == len(replicas) })
	}
	var node *redisServer
	var canary string
	eventually(t, startTimeout, "a registration elsewhere", func() bool {
		for _, n := range s.nodes {
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
	eventually(t, startTimeout, "two renewals", func() bool {
		now := must1(node.Client.PTTL(t.Context(), canary).Result())(t)
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
	stopAll(t, replicas)
}
