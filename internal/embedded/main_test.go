package embedded

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start returns a server that ends with the test.
func start(t testing.TB, cfg Config) *Server {
	t.Helper()
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// overTCP and inMemory are the two ways of a client to a server.
func overTCP(t testing.TB, s *Server) *redis.Client {
	return connect(t, &redis.Options{Addr: s.Addr()})
}

func inMemory(t testing.TB, s *Server) *redis.Client {
	return connect(t, &redis.Options{Addr: s.Addr(), Dialer: s.Dial})
}

func connect(t testing.TB, o *redis.Options) *redis.Client {
	t.Helper()
	o.ContextTimeoutEnabled = true
	o.DialerRetries = 1
	o.MaxRetries = -1
	o.ReadTimeout, o.WriteTimeout = time.Minute, time.Minute // the machine may be slow
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// must fails the test on an error that is not one of a missing value.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// pass lets fake time pass.
func pass(d time.Duration) { <-time.After(d) }

var background = context.Background()
