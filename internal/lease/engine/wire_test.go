package engine

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/embedded"
)

// wire is a server in fake time, and the network before it, which can fail.
type wire struct {
	*testing.T
	server *embedded.Server
	start  time.Time

	mu        sync.Mutex
	mute      bool          // requests do not arrive
	deaf      bool          // requests are done, their replies do not come back
	delay     time.Duration // replies come back later
	cuts      int           // so many connections break instead of the next replies
	asleep    time.Duration // local clock: how long the machine was suspended
	pipelines []int         // requests in those that were sent, without WAIT
	waits     int           // pipelines that ended with WAIT
	acks      int           // replicas that have the writes: the server itself has none
	lag       time.Duration // they have it later
}

// inBubble runs a test in fake time. Everything of it must end with it.
func inBubble(t *testing.T, test func(w *wire)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := (&wire{T: t, start: time.Now()}).another()
		defer w.server.Close()
		test(w)
	})
}

// another is a server of its own, at the same time.
func (w *wire) another() *wire {
	w.Helper()
	s, err := embedded.Start(embedded.Config{DialOnly: true})
	if err != nil {
		w.Fatal(err)
	}
	return &wire{T: w.T, server: s, start: w.start}
}

// redis returns a client of the server that goes over the wire.
func (w *wire) redis(retries int) *redis.Client {
	r := redis.NewClient(&redis.Options{
		Addr: w.server.Addr(), Dialer: w.dial, ContextTimeoutEnabled: true, MaxRetries: retries, DialerRetries: 1, PoolSize: 20,
	})
	r.AddHook(w)
	return r
}

// client returns a client that is closed, with its connections, at the end of the bubble: call close.
func (w *wire) client(cfg Config) (c *Client, closeAll func()) {
	w.Helper()
	r := w.redis(-1)
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

func (w *wire) clock() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.start) + w.asleep
}

// fail sets the faults of the wire; without arguments it is well again.
func (w *wire) fail(how ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute, w.deaf, w.delay = false, false, 0
	for _, h := range how {
		switch h {
		case "mute":
			w.mute = true
		case "deaf":
			w.deaf = true
		default:
			w.Fatalf("a wire can't be %s", h)
		}
	}
}

func (w *wire) slow(delay time.Duration) {
	w.fail()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = delay
}

// replicas sets how many replicas follow the server from now on.
func (w *wire) replicas(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acks = n
}

func (w *wire) cut(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts = n
}

// pass lets time pass, and all that is due happen.
func (w *wire) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// sent returns how many requests were in each of the pipelines since the last call.
func (w *wire) sent() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := w.pipelines
	w.pipelines = nil
	return sent
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := w.server.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &wireConn{Conn: conn, wire: w}, nil
}

type wireConn struct {
	net.Conn
	wire *wire
	cut  bool // wire.mu
}

func (c *wireConn) Write(p []byte) (int, error) {
	c.wire.mu.Lock()
	mute := c.wire.mute
	c.wire.mu.Unlock()
	if mute {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *wireConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		c.wire.mu.Lock()
		deaf, delay, cut := c.wire.deaf, c.wire.delay, c.wire.cuts > 0 && n > 0
		if cut {
			c.wire.cuts--
		}
		c.cut = c.cut || cut
		cut = c.cut // a connection that is broken stays so
		c.wire.mu.Unlock()
		if cut {
			c.Close()
			return 0, io.EOF
		}
		if err != nil || !deaf {
			if delay > 0 { // a timer that is due at once has crashed Go's runtime in a bubble, with the race detector
				<-time.After(delay)
			}
			return n, err
		}
	}
}

// DialHook, ProcessHook and ProcessPipelineHook make the wire a hook that counts pipelines.
func (w *wire) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (w *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		last, waits := cmds[len(cmds)-1].(*redis.Cmd)
		waits = waits && last.Name() == "wait"
		w.mu.Lock()
		requests := 0
		for _, cmd := range cmds {
			requests += requestsOf(cmd.Args())
		}
		w.pipelines = append(w.pipelines, requests)
		if waits {
			w.waits++
			w.pipelines[len(w.pipelines)-1]--
		}
		acks, lag := int64(w.acks), w.lag
		w.mu.Unlock()
		err := next(ctx, cmds)
		if waits && last.Err() == nil {
			if lag > 0 {
				<-time.After(lag)
			}
			last.SetVal(acks)
		}
		return err
	}
}

// requestsOf returns how many requests a command carries: see batch.lua, whose arguments begin with their
// number, not with a lease id.
func requestsOf(command []any) int {
	if name, _ := command[0].(string); strings.HasPrefix(name, "eval") {
		if n, several := command[3+command[2].(int)].(int); several {
			return n
		}
	}
	return 1
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
	other := &wire{T: w.T, server: w.server, start: w.start}
	c, closeAll := other.client(Config{})
	defer closeAll()
	s := c.Inspect(w.Context(), []InspectRequest{{Lock: lock}})[0]
	if s.Err != nil {
		w.Fatal(s.Err)
	}
	return s.Rows
}
