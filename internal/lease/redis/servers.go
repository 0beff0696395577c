package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
)

// A servers finds the Redis server that has a lock: the only server, or the Cluster node that has the lock's keys. go-redis could spread a pipeline
// over a Cluster by itself. But it could not route WAIT, which has no key, and its retries would hide timeouts.
type servers struct {
	single  redis.UniversalClient // nil with a Cluster
	only    *lease.ServerClock    // the clock of single
	one     bool                  // single is certainly one server; other types of client may spread keys over several servers
	cluster *redis.ClusterClient  // nil without a Cluster

	mu       sync.Mutex
	clocks   map[string]*lease.ServerClock // by address; "" for the only server
	slotless map[string]*redis.Client      // by address: nodes of the Cluster that have no slot yet
}

type server struct {
	addr  string // "" for the only server
	redis redis.Cmdable
	clock *lease.ServerClock
}

func newServers(client redis.UniversalClient) *servers {
	s := &servers{clocks: map[string]*lease.ServerClock{}, slotless: map[string]*redis.Client{}}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		s.cluster = cluster
	} else {
		s.single, s.only = client, &lease.ServerClock{}
		_, s.one = client.(*redis.Client)
		s.clocks[""] = s.only
	}
	return s
}

// holderOf returns the server that has a key, according to the client's state of the Cluster.
func (s *servers) holderOf(ctx context.Context, key string) (_ server, err error) {
	defer Shield(&err)
	if s.cluster == nil {
		return server{redis: s.single, clock: s.only}, nil
	}
	node, err := s.cluster.MasterForKey(ctx, key)
	if err != nil {
		return server{}, fmt.Errorf("find the Cluster's node: %w", err)
	}
	return s.serverOf(node), nil
}

// serverAt returns the Cluster node at an address, after another node has redirected a call to it.
func (s *servers) serverAt(ctx context.Context, addr string) (server, error) {
	var mu sync.Mutex
	masters := map[string]*redis.Client{}
	err := s.cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error { // ForEachMaster reloads the Cluster's state first
		mu.Lock()
		defer mu.Unlock()
		masters[node.Options().Addr] = node
		return nil
	})
	if err != nil {
		return server{}, fmt.Errorf("find the Cluster's node at %s: %w", addr, err)
	}
	if node := masters[addr]; node != nil {
		return s.serverOf(node), nil
	}
	return s.slotlessNode(addr, masters)
}

// slotlessNode returns a node to which its first slot is still migrating. The client of the Cluster does not list such a node.
func (s *servers) slotlessNode(addr string, masters map[string]*redis.Client) (server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	node := s.slotless[addr]
	for _, known := range masters {
		if node != nil {
			break
		}
		o := *known.Options()
		o.Addr, o.NodeAddress, o.MaintNotificationsConfig = addr, addr, nil
		o.PushNotificationProcessor = s.cluster.Options().PushNotificationProcessor // the processor of the known node belongs to that node
		node = s.cluster.Options().NewClient(&o)                                    // NewClient also adds the hooks of the application
		s.slotless[addr] = node
	}
	if node == nil {
		return server{}, fmt.Errorf("find the Cluster's node at %s: no master is known", addr)
	}
	return server{addr, node, s.clockOf(addr)}, nil
}

func (s *servers) serverOf(c *redis.Client) server {
	addr := c.Options().Addr
	return server{addr, c, s.clockFor(addr)}
}

// reloadState reloads the state of a Cluster. It is called if a node did not answer, because another node may have replaced it.
func (s *servers) reloadState(ctx context.Context) {
	if s.cluster != nil {
		s.cluster.ReloadState(ctx)
	}
}

func (s *servers) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for _, node := range s.slotless {
		err = errors.Join(err, node.Close())
	}
	clear(s.slotless)
	return err
}

func (s *servers) clockFor(addr string) *lease.ServerClock {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clockOf(addr)
}

// mostClocks is the maximum number of clocks. It is limited because the nodes of a Cluster may change their addresses.
const mostClocks = 1000

// clockOf returns the estimate of the clock of the server at an address. The caller holds mu.
func (s *servers) clockOf(addr string) *lease.ServerClock {
	c := s.clocks[addr]
	if c == nil {
		if len(s.clocks) >= mostClocks {
			clear(s.clocks)
		}
		c = &lease.ServerClock{}
		s.clocks[addr] = c
	}
	return c
}

// estimateAt returns an estimate of Redis's time at a local instant. For a Cluster it is the median of the nodes' clocks, so that one wrong clock has
// no effect.
func (s *servers) estimateAt(local time.Duration) (micros int64, known bool) {
	if s.cluster == nil {
		return s.only.At(local)
	}
	s.mu.Lock()
	clocks := slices.Collect(maps.Values(s.clocks))
	s.mu.Unlock()
	var all []int64
	for _, c := range clocks {
		if at, ok := c.At(local); ok {
			all = append(all, at)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	return all[(len(all)-1)/2], true
}

func (s *servers) marginAt(local time.Duration) (most time.Duration) {
	if s.cluster == nil {
		return s.only.Margin(local)
	}
	s.mu.Lock()
	clocks := slices.Collect(maps.Values(s.clocks))
	s.mu.Unlock()
	for _, c := range clocks {
		most = max(most, c.Margin(local))
	}
	return most
}

// redirectTarget returns the address in a node's reply "MOVED 3999 host:port". If the reply has no host, it uses the host of from, which is the node
// that replied.
func redirectTarget(addr, from string) string {
	at := strings.LastIndexByte(addr, ':')
	if at < 0 {
		return from
	}
	host, port := strings.Trim(addr[:at], "[]"), addr[at+1:]
	if host == "" {
		host, _, _ = net.SplitHostPort(from)
	}
	return net.JoinHostPort(host, port)
}
