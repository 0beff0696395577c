package integration

import (
	"testing"
	"time"

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

// The client that follows the Sentinels is another one, and so is the way of each command to its node of a Cluster.

func TestOnSentinel(t *testing.T) {
	t.Parallel()
	s := startTrio(t, nil)
	connect := func(*testing.T) redis.UniversalClient {
		var sentinels []string
		for _, s := range s.sentinels {
			sentinels = append(sentinels, s.instance.addr())
		}
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: masterName, SentinelAddrs: sentinels,
			ContextTimeoutEnabled: true, ReadTimeout: time.Minute, MaxRetries: -1})
	}
	t.Run("locking", func(t *testing.T) { locktest.Run(t, connect) })
	t.Run("journal", func(t *testing.T) { journaltest.Run(t, closing(connect)) })
}

func TestOnCluster(t *testing.T) {
	t.Parallel()
	s := startCluster(t)
	connect := func(t *testing.T) redis.UniversalClient { return s.client(t) }
	t.Run("locking", func(t *testing.T) { locktest.Run(t, connect) })
	t.Run("journal", func(t *testing.T) { journaltest.Run(t, closing(connect)) })
}

// closing closes what is connected after the test.
func closing(connect func(*testing.T) redis.UniversalClient) func(*testing.T) redis.UniversalClient {
	return func(t *testing.T) redis.UniversalClient {
		c := connect(t)
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		return c
	}
}
