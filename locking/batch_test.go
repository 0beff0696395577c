package locking_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/locking/locktest"
)

// Requests that travel as one command are each granted what they ask for.
func TestRequestsOfOneCommandKeepTheirOwnArguments(t *testing.T) {
	inParcels(t, func(_ *redis.Client, _ string, c *locking.Client) {
		var requests []lease.Request
		var looks []lease.InspectRequest
		for i := range 120 {
			r := lease.Request{Lock: fmt.Sprint("lock", i), Lease: time.Duration(60+i%3) * time.Second, Slots: 1 + i%4, Memo: strings.Repeat("\n", i%5)}
			if i%7 == 0 {
				r.Trigger = "by hand"
			}
			requests, looks = append(requests, r), append(looks, lease.InspectRequest{Lock: r.Lock})
		}
		answers := c.Engine().AcquireAll(context.Background(), requests)
		for i, s := range c.Engine().Inspect(context.Background(), looks) {
			r := requests[i]
			if s.Err != nil || len(s.Running) != 1 || answers[i].Verdict != lease.Granted {
				t.Fatalf("%s: %v, %v (%v), rows %v", r.Lock, s.Err, answers[i].Verdict, answers[i].Err, s.Running)
			}
			row := s.Running[0]
			if row.ID != answers[i].ID || row.Token != answers[i].Run.Token() || row.Length != r.Lease || row.Memo != r.Memo || row.Trigger != r.Trigger {
				t.Errorf("%s was granted %+v for %+v", r.Lock, row, r)
			}
		}
		for i, r := range requests {
			if a := c.Engine().Acquire(context.Background(), lease.Request{Lock: r.Lock, Slots: r.Slots + 1}); !errors.Is(a.Err, locking.ErrLimit) {
				t.Errorf("%s with %d slots: %v (%v)", requests[i].Lock, r.Slots+1, a.Verdict, a.Err)
			}
		}
	})
}

// A request that the server refuses to execute is no reason to refuse those that travel with it.
func TestErrorOfOneRequestIsThatOnesAlone(t *testing.T) {
	inParcels(t, func(rdb *redis.Client, prefix string, c *locking.Client) {
		if err := rdb.Set(context.Background(), prefix+"{spoiled}", "no lock", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		answers := c.Engine().AcquireAll(context.Background(), []lease.Request{{Lock: "a"}, {Lock: "spoiled"}, {Lock: "b"}})
		if a := answers[1]; a.Verdict != lease.Unknown || !strings.Contains(a.Err.Error(), "WRONGTYPE") {
			t.Errorf("spoiled: %v, %v", a.Verdict, a.Err)
		}
		for _, i := range []int{0, 2} {
			if answers[i].Verdict != lease.Granted {
				t.Errorf("request %d: %v, %v", i, answers[i].Verdict, answers[i].Err)
			}
		}
	})
}

// A client that spreads keys over several servers sends each request to the one that has its lock.
func TestShardsKeepTheirLocks(t *testing.T) {
	o := &redis.RingOptions{Addrs: map[string]string{}, ContextTimeoutEnabled: true}
	for _, name := range []string{"one", "two", "three"} {
		s, err := embedded.Start(embedded.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		o.Addrs[name] = s.Addr()
	}
	ring := redis.NewRing(o)
	defer ring.Close()
	var requests []lease.Request
	for i := range 20 {
		requests = append(requests, lease.Request{Lock: fmt.Sprint("lock", i)})
	}
	for n, want := range []lease.Verdict{lease.Granted, lease.Held} {
		c, err := locking.New(locking.Config{Redis: ring})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for i, a := range c.Engine().AcquireAll(context.Background(), requests) {
			if a.Verdict != want {
				t.Errorf("client %d, %s: %q (%v)", n, requests[i].Lock, a.Verdict, a.Err)
			}
			if again := c.Engine().Acquire(context.Background(), requests[i]); again.Verdict != lease.Held {
				t.Errorf("client %d, %s once more: %q (%v)", n, requests[i].Lock, again.Verdict, again.Err)
			}
		}
	}
}

func inParcels(t *testing.T, test func(rdb *redis.Client, prefix string, c *locking.Client)) {
	eachServer(t, func(t *testing.T, rdb *redis.Client) {
		prefix := "parcel:" + rand.Text() + ":"
		c, err := locking.New(locking.Config{Redis: rdb, Prefix: prefix, Timeout: 20 * time.Second, Idle: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		test(rdb, prefix, c)
	})
}

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
