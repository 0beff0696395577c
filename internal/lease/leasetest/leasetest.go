// Package leasetest has in-process Redis servers in fake time, behind simulated networks that can fail, for tests of package locking and its stores.
package leasetest

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

// A Wire is a Redis server in fake time, and the simulated network to it, which can fail.
type Wire struct {
	*testing.T
	Server *embedded.Server
	Start  time.Time

	mu        sync.Mutex
	mute      bool          // requests do not arrive
	deaf      bool          // requests are executed, but their replies do not arrive
	delay     time.Duration // the delay of replies
	cuts      int           // the number of next replies that are replaced by a broken connection
	asleep    time.Duration // the total time, by the local clock, for which the machine was suspended
	pipelines []int         // the number of requests in each pipeline that was sent, without WAIT
	waits     int           // the number of pipelines that ended with WAIT
	acks      int           // the number of replicas that WAIT reports; the server has no real ones
	lag       time.Duration // the time after which the replicas have the writes
}

// InBubble runs a test in fake time. All goroutines of the test must end with it.
func InBubble(t *testing.T, test func(w *Wire)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := (&Wire{T: t, Start: time.Now()}).Another()
		defer w.Server.Close()
		test(w)
	})
}

// Another returns a wire to another server, with the same fake time.
func (w *Wire) Another() *Wire {
	w.Helper()
	s, err := embedded.Start(embedded.Config{DialOnly: true})
	if err != nil {
		w.Fatal(err)
	}
	return &Wire{T: w.T, Server: s, Start: w.Start}
}

// Redis returns a client that is connected to the server through the wire.
func (w *Wire) Redis(retries int) *redis.Client {
	r := redis.NewClient(&redis.Options{
		Addr: w.Server.Addr(), Dialer: w.Dial, ContextTimeoutEnabled: true, MaxRetries: retries, DialerRetries: 1, PoolSize: 20,
	})
	r.AddHook(w)
	return r
}

// Clock returns the local clock, counted from the start.
func (w *Wire) Clock() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.Start) + w.asleep
}

// Fail sets the faults of the wire. Without arguments it removes them.
func (w *Wire) Fail(how ...string) {
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

// Slow delays replies.
func (w *Wire) Slow(delay time.Duration) {
	w.Fail()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = delay
}

// Suspend advances only the local clock, as if the machine was suspended.
func (w *Wire) Suspend(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asleep += d
}

// Beside returns another wire to the same server, with its own faults.
func (w *Wire) Beside() *Wire { return &Wire{T: w.T, Server: w.Server, Start: w.Start} }

// Lag sets the time after which replicas have the writes.
func (w *Wire) Lag(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lag = d
}

// Waits returns the number of pipelines that have ended with WAIT since the last call.
func (w *Wire) Waits() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.waits
	w.waits = 0
	return n
}

// Cuts returns the number of replies that are still to be cut.
func (w *Wire) Cuts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts
}

// Replicas sets the number of replicas of the server from now on.
func (w *Wire) Replicas(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acks = n
}

// Cut makes the next n replies break their connection instead.
func (w *Wire) Cut(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts = n
}

// Pass advances the fake time, and waits until all goroutines are idle.
func (w *Wire) Pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// Sent returns the number of requests in each pipeline since the last call.
func (w *Wire) Sent() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := w.pipelines
	w.pipelines = nil
	return sent
}

// Dial connects to the server through the wire.
func (w *Wire) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := w.Server.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &wireConn{Conn: conn, wire: w}, nil
}

type wireConn struct {
	net.Conn
	wire *Wire
	cut  bool // guarded by wire.mu
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
		cut = c.cut // a broken connection stays broken
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

// DialHook makes the wire a hook.
func (w *Wire) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook makes the wire a hook.
func (w *Wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook counts pipelines, and answers WAIT.
func (w *Wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
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

// requestsOf returns the number of requests in a command. The arguments of a batch begin with this number instead of a lease id: see batch.lua.
func requestsOf(command []any) int {
	if name, _ := command[0].(string); strings.HasPrefix(name, "eval") {
		if n, several := command[3+command[2].(int)].(int); several {
			return n
		}
	}
	return 1
}
