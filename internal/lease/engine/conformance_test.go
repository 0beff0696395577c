package engine_test

import (
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/locking/locktest"
)

// TestConformance runs the suite on the in-process server. The integration tests run it on a real Redis.
func TestConformance(t *testing.T) {
	servers := startServers(t, 1)
	locktest.Run(t, func(*testing.T) redis.UniversalClient { return connectTo(servers[0]) })
}

// TestConformanceOfAQuorum runs the suite on three in-process servers.
// Promise: quorum
func TestConformanceOfAQuorum(t *testing.T) {
	testtier.Slow(t)
	servers := startServers(t, 3)
	locktest.RunQuorum(t, func(*testing.T) (clients []redis.UniversalClient) {
		for _, s := range servers {
			clients = append(clients, connectTo(s))
		}
		return clients
	})
}

// startServers starts servers in this process. The tests of a suite share theirs, with keys of their own: a new server has to parse the scripts anew.
func startServers(t testing.TB, n int) (servers []*embedded.Server) {
	t.Helper()
	for range n {
		s, err := embedded.Start(embedded.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		servers = append(servers, s)
	}
	return servers
}

func connectTo(s *embedded.Server) redis.UniversalClient {
	return redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
}

// TestConformanceOfRedis runs the suite on the Redis that CRONCLAVE_TEST_REDIS names, if any.
func TestConformanceOfRedis(t *testing.T) {
	url := os.Getenv("CRONCLAVE_TEST_REDIS")
	if url == "" {
		t.Skip("CRONCLAVE_TEST_REDIS names no server; integration/ starts one and runs this suite on it")
	}
	locktest.Run(t, func(t *testing.T) redis.UniversalClient {
		o, err := redis.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		o.ContextTimeoutEnabled, o.ReadTimeout = true, time.Minute
		return redis.NewClient(o)
	})
}
