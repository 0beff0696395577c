package integration

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/journal/journaltest"
	"github.com/cronclave/cronclave/locking/locktest"
)

// The conformance suites run on the in-process server in the tests of their packages; here they run on a real Redis.

func TestLockingOnRealRedis(t *testing.T) {
	locktest.Run(t, func(t *testing.T) redis.UniversalClient {
		return redis.NewClient(clientOptions(mustRealRedis(t).shared.addr())) // the suite closes it
	})
}

func TestJournalOnRealRedis(t *testing.T) {
	journaltest.Run(t, func(t *testing.T) redis.UniversalClient {
		return newClient(t, mustRealRedis(t).shared.addr())
	})
}
