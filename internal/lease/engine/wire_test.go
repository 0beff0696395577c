package engine

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease/leasetest"
)

// wire is a server in fake time, and the network before it, for clients.
type wire struct{ *leasetest.Wire }

// inBubble runs a test in fake time. Everything of it must end with it.
func inBubble(t *testing.T, test func(w *wire)) {
	t.Helper()
	leasetest.InBubble(t, func(w *leasetest.Wire) { test(&wire{w}) })
}

func (w *wire) another() *wire                  { w.Helper(); return &wire{w.Another()} }
func (w *wire) beside() *wire                   { return &wire{w.Beside()} }
func (w *wire) redis(retries int) *redis.Client { return w.Redis(retries) }
func (w *wire) clock() time.Duration            { return w.Clock() }
func (w *wire) fail(how ...string)              { w.Fail(how...) }
func (w *wire) slow(delay time.Duration)        { w.Slow(delay) }
func (w *wire) replicas(n int)                  { w.Replicas(n) }
func (w *wire) cut(n int)                       { w.Cut(n) }
func (w *wire) pass(d time.Duration)            { w.Pass(d) }
func (w *wire) sent() []int                     { return w.Sent() }

// client returns a client that is closed, with its connections, at the end of the bubble: call close.
func (w *wire) client(cfg Config) (c *Client, closeAll func()) {
	w.Helper()
	return w.clientOf(w.redis(-1), cfg)
}

// clientOf is client over a client of Redis, which is closed with it.
func (w *wire) clientOf(r *redis.Client, cfg Config) (c *Client, closeAll func()) {
	w.Helper()
	cfg.Redis, cfg.Clock = r, w.clock
	c, err := New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	return c, func() {
		if err := c.Close(); err != nil {
			w.Error(err)
		}
		_ = r.Close()
	}
}

// lock takes a mutex.
func (w *wire) lock(c *Client, name string, lease time.Duration) *Lease {
	w.Helper()
	a := c.Acquire(w.Context(), Request{Lock: name, Lease: lease})
	if a.Verdict != Granted {
		w.Fatalf("lock %s: %q, %v", name, a.Verdict, a.Err)
	}
	return a.Lease
}

// rows are the rows that the server has, seen over a wire of its own.
func (w *wire) rows(lock string) []Row {
	w.Helper()
	other := w.beside()
	c, closeAll := other.client(Config{})
	defer closeAll()
	s := c.Inspect(w.Context(), []InspectRequest{{Lock: lock}})[0]
	if s.Err != nil {
		w.Fatal(s.Err)
	}
	return s.Rows
}
