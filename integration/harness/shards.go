package harness

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

// AddReplicas gives each master a replica, and returns when these have all that it has.
func (c *Shards) AddReplicas(t *testing.T) {
	t.Helper()
	masters := slices.Clone(c.Nodes)
	var replicas []*RedisServer
	for range masters {
		r := StartNode(t)
		c.Join(t, r)
		replicas = append(replicas, r)
	}
	c.AwaitWhole(t)
	for i, m := range masters {
		id := c.id(t, m)
		Eventually(t, StartTimeout, "master that its replica knows", func() bool { return replicas[i].Client.ClusterReplicate(t.Context(), id).Err() == nil })
	}
	Eventually(t, StartTimeout, "replicas of all masters", func() bool {
		return !slices.ContainsFunc(masters, func(m *RedisServer) bool { return !strings.Contains(replication(t, m)["slave0"], "state=online") })
	})
}

// NameOn is a job's name that leads to a node.
func (c *Shards) NameOn(t *testing.T, n *RedisServer, prefix string) string {
	t.Helper()
	for i := 0; ; i++ {
		name := fmt.Sprint(prefix, i)
		if c.Owner(t, c.Slot(t, name)) == n {
			return name
		}
	}
}

func (c *Shards) Slot(t *testing.T, job string) int {
	t.Helper()
	return int(Must1(c.Nodes[0].Client.ClusterKeySlot(t.Context(), job).Result())(t))
}

// AwaitTakeOver waits until another node has a slot, and the Cluster serves again.
func (c *Shards) AwaitTakeOver(t *testing.T, slot int, old *RedisServer) {
	t.Helper()
	Eventually(t, StartTimeout, "replica that takes over", func() bool {
		info, err := c.Nodes[0].Client.ClusterInfo(t.Context()).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok") && c.Owner(t, slot) != old
	})
}

// Shards is a Cluster of masters, processes on this machine.
type Shards struct {
	Nodes []*RedisServer
	URL   string
}

// nodeProgram makes nodes of a Cluster.
type nodeProgram struct{ RedisProgram }

// busOffset is the distance of the port of a Cluster's bus to the port for other nodes.
const busOffset = 10_000

func (s nodeProgram) Create(args []string) (RedisInstance, error) {
	for {
		instance, err := s.RedisProgram.Create(args)
		if err != nil || instance.(*RedisProcess).peerPort()+busOffset < 1<<16 {
			return instance, err
		}
		if err := instance.Remove(context.Background()); err != nil {
			return nil, err
		}
	}
}

func StartNode(t *testing.T, options ...string) *RedisServer {
	t.Helper()
	args := append(slices.Clone(Persistent), "--cluster-enabled", "yes", "--cluster-node-timeout", "5000")
	return StartFrom(t, nodeProgram{MustProgram(t)}, append(args, options...))
}

// StartCluster returns when all of three nodes answer for all slots.
func StartCluster(t *testing.T, options ...string) *Shards {
	t.Helper()
	const slots, count = 16384, 3
	c := &Shards{}
	var addrs []string
	for i := range count {
		n := StartNode(t, options...)
		Must(t, n.Client.ClusterAddSlotsRange(t.Context(), i*slots/count, (i+1)*slots/count-1).Err())
		Must(t, n.Client.Do(t.Context(), "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		c.Join(t, n)
		addrs = append(addrs, n.Instance.Addr())
	}
	c.URL = "redis-cluster://" + strings.Join(addrs, ",")
	c.AwaitWhole(t)
	return c
}

// Join makes a node one of the Cluster.
func (c *Shards) Join(t *testing.T, n *RedisServer) {
	t.Helper()
	if len(c.Nodes) > 0 {
		host, port, _ := strings.Cut(c.Nodes[0].PeerAddr(), ":")
		Must(t, n.Client.ClusterMeet(t.Context(), host, port).Err())
	}
	c.Nodes = append(c.Nodes, n)
}

// AwaitWhole waits until all nodes know each other, and the owners of all slots.
func (c *Shards) AwaitWhole(t *testing.T) {
	t.Helper()
	want := fmt.Sprintf("cluster_known_nodes:%d\r\n", len(c.Nodes))
	Eventually(t, StartTimeout, "whole Cluster", func() bool {
		return !slices.ContainsFunc(c.Nodes, func(n *RedisServer) bool {
			info, err := n.Client.ClusterInfo(t.Context()).Result()
			return err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, want)
		})
	})
}

// Client returns one that goes by the Cluster's rules.
func (c *Shards) Client(t *testing.T) *redis.ClusterClient {
	t.Helper()
	var addrs []string
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Instance.Addr())
	}
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
}

// Owner is the node that has a slot.
func (c *Shards) Owner(t *testing.T, slot int) *RedisServer {
	t.Helper()
	ranges := Must1(c.Nodes[0].Client.Do(t.Context(), "CLUSTER", "SLOTS").Slice())(t)
	for _, r := range ranges { // first slot, last slot, master, replicas; of a node: host, port ...
		r := r.([]any)
		port := r[2].([]any)[1].(int64)
		for _, n := range c.Nodes {
			if r[0].(int64) <= int64(slot) && int64(slot) <= r[1].(int64) && PortOf(n.Instance.Addr()) == strconv.FormatInt(port, 10) {
				return n
			}
		}
	}
	t.Fatalf("slot %d has no owner", slot)
	return nil
}

func (c *Shards) id(t *testing.T, n *RedisServer) string {
	t.Helper()
	return Must1(n.Client.ClusterMyID(t.Context()).Result())(t)
}

// Move hands a slot over, as redis-cli --cluster reshard does. between is called when half of the slot's keys have moved: scripts
// are refused then (TRYAGAIN), since they see only a part of their keys. It is called again when all have, and the other nodes
// have not heard of it yet (ASK).
func (c *Shards) Move(t *testing.T, slot int, to *RedisServer, between func()) {
	t.Helper()
	from := c.Owner(t, slot)
	if from == to {
		return
	}
	Must(t, setSlot(t, to, slot, "IMPORTING", c.id(t, from)))
	Must(t, setSlot(t, from, slot, "MIGRATING", c.id(t, to)))
	half := (Must1(from.Client.ClusterCountKeysInSlot(t.Context(), slot).Result())(t) + 1) / 2
	moved := int64(0)
	for {
		keys := Must1(from.Client.ClusterGetKeysInSlot(t.Context(), slot, 1).Result())(t)
		if len(keys) == 0 {
			break
		}
		host, port, _ := strings.Cut(to.Instance.Addr(), ":")
		Must(t, from.Client.Do(t.Context(), "MIGRATE", host, port, keys[0], 0, 5000).Err())
		if moved++; moved == half {
			between()
		}
	}
	between()
	Must(t, setSlot(t, to, slot, "NODE", c.id(t, to)))
	for _, n := range c.Nodes { // a node without a slot may be a replica by now, which hears of it anyway
		if err := setSlot(t, n, slot, "NODE", c.id(t, to)); err != nil && !strings.Contains(err.Error(), "only with masters") {
			t.Fatal(err)
		}
	}
}

func setSlot(t *testing.T, n *RedisServer, slot int, how, node string) error {
	return n.Client.Do(t.Context(), "CLUSTER", "SETSLOT", slot, how, node).Err()
}
