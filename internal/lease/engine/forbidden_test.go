package engine

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	resp "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
)

// channels is a server whose ACL may forbid to subscribe, and the connections to it.
type channels struct {
	forbidden atomic.Bool
	refused   atomic.Int64
	mu        sync.Mutex
	conns     []net.Conn
}

func newChannels(t *testing.T) (*channels, *redis.Client) {
	t.Helper()
	c := &channels{}
	s := miniredis.RunT(t)
	s.Server().SetPreHook(func(p *resp.Peer, cmd string, _ ...string) bool {
		no := cmd == "SUBSCRIBE" && c.forbidden.Load()
		if no {
			c.refused.Add(1)
			p.WriteError("NOPERM this user has no permissions to access one of the channels used as arguments")
		}
		return no
	})
	r := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.conns = append(c.conns, conn)
			}
			return conn, err
		}})
	t.Cleanup(func() { _ = r.Close() })
	return c, r
}

// cut breaks all connections.
func (c *channels) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}

// A channel that the server's ACL forbids is told once, and once more when it had worked in between.
func TestForbiddenChannelIsLoggedOnce(t *testing.T) {
	server, r := newChannels(t)
	server.forbidden.Store(true)
	told, heard := make(chan string, 100), make(chan []GrantEvent, 100)
	c, err := New(Config{Redis: r, Prefix: "p:", OnForbidden: func(channel string, err error) {
		if !redis.IsPermissionError(err) {
			t.Error(err)
		}
		told <- channel
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var hearing sync.WaitGroup
	hearing.Go(func() { c.Subscribe(ctx, func(n []GrantEvent) { heard <- n }) })
	defer hearing.Wait()
	defer cancel()
	const patience = 30 * time.Second
	for range 2 {
		within(t, patience, "it is told", func() bool { return len(told) > 0 })
		if channel := <-told; channel != "p:granted" {
			t.Errorf("told of channel %s", channel)
		}
		before := server.refused.Load()
		within(t, patience, "it tries on", func() bool { return server.refused.Load() >= before+3 })
		server.forbidden.Store(false)
		within(t, patience, "it hears", func() bool {
			_ = r.Publish(t.Context(), "p:granted", "").Err()
			return len(heard) > 0
		})
		if len(told) > 0 {
			t.Error("it was told again")
		}
		for len(heard) > 0 {
			<-heard
		}
		server.forbidden.Store(true)
		server.cut()
	}
}

// within waits until a condition holds.
func within(t *testing.T, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(patience); !holds(); {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
