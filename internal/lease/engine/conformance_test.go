package engine_test

import (
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/locking/locktest"
)

// TestConformance runs the suite on the in-process server. The integration tests run it on a real Redis.
func TestConformance(t *testing.T) {
	locktest.Run(t, func(t *testing.T) redis.UniversalClient {
		s, err := embedded.Start(embedded.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
	})
}

// TestConformanceOfAQuorum runs the suite on five in-process servers.
// Promise: quorum
func TestConformanceOfAQuorum(t *testing.T) {
	locktest.RunQuorum(t, func(t *testing.T) []redis.UniversalClient {
		var clients []redis.UniversalClient
		for range 5 {
			s, err := embedded.Start(embedded.Config{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			clients = append(clients, redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true, ReadTimeout: time.Minute}))
		}
		return clients
	})
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
