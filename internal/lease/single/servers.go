package single

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

	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// servers finds the server that holds a lock: the only one there is, or the master of a Cluster that has its
// keys. A Cluster's client could spread a pipeline by itself, but WAIT has no key that routes it, and that
// client's own retries would hide time-outs.
type servers struct {
	single  redis.UniversalClient // nil with a Cluster
	only    *clock.Server         // that of single
	one     bool                  // single is surely one server, and no front of several
	cluster *redis.ClusterClient  // nil without one

	mu       sync.Mutex
	clocks   map[string]*clock.Server // by address; "" is the only server
	slotless map[string]*redis.Client // nodes of the Cluster that have no slot yet, by address
}

// server is one of them.
type server struct {
	addr  string // "" for the only one
	redis redis.Cmdable
	clock *clock.Server
}

func newServers(client redis.UniversalClient) *servers {
	s := &servers{clocks: map[string]*clock.Server{}, slotless: map[string]*redis.Client{}}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		s.cluster = cluster
	} else {
		s.single, s.only = client, &clock.Server{}
		_, s.one = client.(*redis.Client)
		s.clocks[""] = s.only
	}
	return s
}

// holder is the server that has a key, as far as the client knows.
func (s *servers) holder(ctx context.Context, key string) (_ server, err error) {
	defer transport.Shield(&err)
	if s.cluster == nil {
		return server{redis: s.single, clock: s.only}, nil
	}
	node, err := s.cluster.MasterForKey(ctx, key)
	if err != nil {
		return server{}, fmt.Errorf("find the Cluster's node: %w", err)
	}
	return s.node(node), nil
}

// at is the node at an address, to which another one has redirected.
func (s *servers) at(ctx context.Context, addr string) (server, error) {
	var mu sync.Mutex
	masters := map[string]*redis.Client{}
	err := s.cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error { // which asks for news first
		mu.Lock()
		defer mu.Unlock()
		masters[node.Options().Addr] = node
		return nil
	})
	if err != nil {
		return server{}, fmt.Errorf("find the Cluster's node at %s: %w", addr, err)
	}
	if node := masters[addr]; node != nil {
		return s.node(node), nil
	}
	return s.slotlessNode(addr, masters)
}

// slotlessNode is a node that has no slot yet, only one on its way: the Cluster's client does not know it.
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
		o.PushNotificationProcessor = s.cluster.Options().PushNotificationProcessor // the known one's is its own
		node = s.cluster.Options().NewClient(&o)                                    // with the additions of its maker: hooks, for one
		s.slotless[addr] = node
	}
	if node == nil {
		return server{}, fmt.Errorf("find the Cluster's node at %s: no master is known", addr)
	}
	return server{addr, node, s.clockOf(addr)}, nil
}

func (s *servers) node(c *redis.Client) server {
	addr := c.Options().Addr
	return server{addr, c, s.clock(addr)}
}

// suspect asks for news of a Cluster in which a node does not answer: its place may have been taken.
func (s *servers) suspect(ctx context.Context) {
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

// clock is the estimate of the clock of the server at an address.
func (s *servers) clock(addr string) *clock.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clockOf(addr)
}

// mostClocks bounds how many nodes are remembered; nodes of a Cluster may change their addresses.
const mostClocks = 1000

func (s *servers) clockOf(addr string) *clock.Server {
	c := s.clocks[addr]
	if c == nil {
		if len(s.clocks) >= mostClocks {
			clear(s.clocks)
		}
		c = &clock.Server{}
		s.clocks[addr] = c
	}
	return c
}

// estimate is the time of the servers' clocks at a local instant: the middle one of a Cluster's nodes, so
// that a wrong clock does not falsify the others.
func (s *servers) estimate(local time.Duration) (micros int64, known bool) {
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

// margin is how far the estimate may be off at a local instant.
func (s *servers) margin(local time.Duration) (most time.Duration) {
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

// redirection reads the address in a node's reply "MOVED 3999 host:port". Without a host it is the node's own.
func redirection(addr, from string) string {
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
