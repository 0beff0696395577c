package redis

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/journal/journaltest"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/locking/locktest"
)

// The conformance suites run on the in-process server in the tests of their packages; here they run on a real Redis.

func TestLockingOnRealRedis(t *testing.T) { // alone: the suite flushes the scripts of the shared server
	shared := harness.NewClient(t, harness.MustRealRedis(t).Shared.Addr())
	documentedUser(t, shared)
	locktest.Run(t, func(t *testing.T) redis.UniversalClient {
		o := harness.ClientOptions(harness.MustRealRedis(t).Shared.Addr())
		o.Username, o.Password = shopUser, shopSecret
		return redis.NewClient(o) // the suite closes it
	})
}

const shopUser, shopSecret = "shop", "secret"

// documentedUser makes the user that the documentation of locking has, so that the suite shows that he may do all that is needed; and what the suite
// itself does besides.
func documentedUser(t *testing.T, on *redis.Client) {
	t.Helper()
	text := string(harness.Must1(os.ReadFile(harness.Root + "/locking/locking.go"))(t))
	_, text, found := strings.Cut(text, "//	ACL SETUSER "+shopUser+" on >"+shopSecret+" ~shop:* &shop:* ")
	text, _, ended := strings.Cut(text, "\n//\n")
	if !found || !ended {
		t.Fatal("the documentation of locking has no user")
	}
	words := []any{"ACL", "SETUSER", shopUser, "on", ">" + shopSecret, "~locktest:*", "&locktest:*"}
	for _, word := range strings.Fields(strings.ReplaceAll(text, "//", " ")) {
		words = append(words, word)
	}
	harness.Must(t, on.Do(t.Context(), append(words, "+scan", "+zcard", "+incr", "+script|flush")...).Err())
}

func TestJournalOnRealRedis(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, func(t *testing.T) redis.UniversalClient {
		return harness.NewClient(t, harness.MustRealRedis(t).Shared.Addr())
	})
}

// The client that follows the Sentinels is another one, and so is the way of each command to its node of a Cluster.

func TestOnSentinel(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := harness.StartTrio(t, nil)
	connect := func(*testing.T) redis.UniversalClient {
		var sentinels []string
		for _, s := range s.Sentinels {
			sentinels = append(sentinels, s.Instance.Addr())
		}
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: harness.MasterName, SentinelAddrs: sentinels,
			ContextTimeoutEnabled: true, ReadTimeout: time.Minute, MaxRetries: -1})
	}
	t.Run("locking", func(t *testing.T) { locktest.Run(t, connect) })
	t.Run("journal", func(t *testing.T) { journaltest.Run(t, closing(connect)) })
}

func TestOnCluster(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := harness.StartCluster(t)
	connect := func(t *testing.T) redis.UniversalClient { return s.Client(t) }
	t.Run("locking", func(t *testing.T) {
		for _, n := range s.Nodes {
			documentedUser(t, n.Client)
		}
		locktest.Run(t, func(t *testing.T) redis.UniversalClient {
			c := s.Client(t).Options()
			c.Username, c.Password = shopUser, shopSecret
			return redis.NewClusterClient(c)
		})
	})
	t.Run("journal", func(t *testing.T) { journaltest.Run(t, closing(connect)) })
}

// closing closes the connection after the test.
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
