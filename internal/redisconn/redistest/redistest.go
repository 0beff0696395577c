// Package redistest starts the embedded Redis with an empty journal, for tests. The end of a test stops both.
package redistest

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
)

// StartJournal starts a server with a URL. Calls of its journal have a minute, because tests share the machine.
func StartJournal(t testing.TB) (*embedded.Server, *redisconn.Conn, *journal.Journal) {
	t.Helper()
	s := start(t, embedded.Config{})
	conn := Connect(t, s.URL())
	return s, conn, open(t, conn, time.Minute)
}

// Connect opens a connection to a single server. Each of its round trips has a minute.
func Connect(t testing.TB, url string) *redisconn.Conn {
	t.Helper()
	source, err := redisconn.Named{Flag: url}.Find()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := redisconn.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	client, ok := conn.UniversalClient.(*redis.Client)
	if !ok {
		t.Fatalf("%T has other options", conn.UniversalClient)
	}
	o := client.Options() // the client reads them for each command
	o.ReadTimeout, o.WriteTimeout = time.Minute, time.Minute
	return conn
}

// StartInMemory starts a server without a socket, as fake time requires. Its client tries each command once, and its journal has the timeout of replicas.
func StartInMemory(t testing.TB) (*redis.Client, *journal.Journal) {
	t.Helper()
	s := start(t, embedded.Config{DialOnly: true})
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), Dialer: s.Dial, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb, open(t, rdb, journal.DefaultTimeout)
}

func start(t testing.TB, cfg embedded.Config) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func open(t testing.TB, rdb redis.UniversalClient, timeout time.Duration) *journal.Journal {
	t.Helper()
	j, err := journal.New(journal.Config{Redis: rdb, Namespace: "default", Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	return j
}
