package locking

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	resp "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	redisstore "github.com/cronclave/cronclave/internal/lease/redis"

	"github.com/cronclave/cronclave/internal/lease"
)

// halves is a Cluster of two servers, of which each has half of the slots, and the scripts' bounds in time that were sent to each.
type halves struct {
	servers [2]*miniredis.Miniredis
	client  *redis.ClusterClient

	mu     sync.Mutex
	untils map[string][]int64 // by port
}

func newHalves(t *testing.T) *halves {
	t.Helper()
	h := &halves{servers: [2]*miniredis.Miniredis{miniredis.RunT(t), miniredis.RunT(t)}, untils: map[string][]int64{}}
	slots := []redis.ClusterSlot{
		{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: h.servers[0].Addr()}}},
		{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: h.servers[1].Addr()}}},
	}
	h.client = redis.NewClusterClient(&redis.ClusterOptions{ContextTimeoutEnabled: true, NewClient: h.node,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return slots, nil }})
	t.Cleanup(func() { _ = h.client.Close() })
	return h
}

func (h *halves) node(o *redis.Options) *redis.Client {
	node := redis.NewClient(o)
	_, port, _ := net.SplitHostPort(o.Addr)
	node.AddHook(&untilHook{halves: h, port: port})
	return node
}

type untilHook struct {
	*halves
	port string
}

func (h *untilHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h *untilHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h *untilHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.mu.Lock()
		for _, cmd := range cmds {
			if args := cmd.Args(); cmd.Name() == "evalsha" || cmd.Name() == "eval" {
				until := 3 + args[2].(int) + 1 // behind name, script, number of keys, the keys, and the lease id
				h.untils[h.port] = append(h.untils[h.port], args[until].(int64))
			}
		}
		h.mu.Unlock() // the node's client comes here again, to introduce itself
		return next(ctx, cmds)
	}
}

// A Cluster's nodes have clocks of their own: the time limit of a request on one node means nothing on
// another.
func TestEachNodeOfAClusterHasItsClock(t *testing.T) {
	h := newHalves(t)
	times := [2]time.Time{time.Unix(1_800_000_000, 0), time.Unix(1_800_003_600, 0)}
	for i, s := range h.servers {
		s.SetTime(times[i])
	}
	c, err := New(Config{Redis: h.client, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var requests []lease.Request
	for i := range 20 {
		requests = append(requests, lease.Request{Lock: strconv.Itoa(i), ID: strconv.Itoa(i), Lease: time.Hour})
	}
	for range 3 { // the same grants again
		for _, a := range c.requests.AcquireAll(t.Context(), requests) {
			if a.Verdict != lease.Granted {
				t.Fatalf("lock %s: %q, %v", a.ID, a.Verdict, a.Err)
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, s := range h.servers {
		untils := h.untils[s.Port()]
		if len(untils) == 0 {
			t.Errorf("no request for node %d", i)
		}
		for _, until := range untils {
			if ahead := time.UnixMicro(until).Sub(times[i]); ahead < 0 || ahead > 2*time.Minute {
				t.Fatalf("node %d: a request is valid for %v", i, ahead)
			}
		}
	}
	if at, ok := c.requests.EstimatedTime(); !ok || at.Before(times[0].Add(-time.Minute)) || at.After(times[1].Add(time.Minute)) {
		t.Errorf("estimate %v", at)
	}
}

func TestLocksOfADeadNodeAreUnknownAndNoOthers(t *testing.T) {
	h := newHalves(t)
	c, err := New(Config{Redis: h.client, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	h.servers[1].Close()
	var requests []lease.Request
	for i := range 20 {
		requests = append(requests, lease.Request{Lock: strconv.Itoa(i), Lease: time.Hour})
	}
	verdicts := map[lease.Verdict]int{}
	for _, a := range c.requests.AcquireAll(t.Context(), requests) {
		verdicts[a.Verdict]++
		if a.Verdict == lease.Unknown && !errors.Is(a.Err, ErrUnknown) {
			t.Error(a.Err)
		}
	}
	if verdicts[lease.Granted] == 0 || verdicts[lease.Unknown] == 0 || verdicts[lease.Granted]+verdicts[lease.Unknown] != len(requests) {
		t.Errorf("%v", verdicts)
	}
}

// A node that has no slot yet is spoken to by a client like those of the others.
func TestClientOfANodeWithoutASlotIsMadeAsTheOthersAre(t *testing.T) {
	h := newHalves(t)
	third := miniredis.RunT(t)
	for _, s := range h.servers {
		s.Server().SetPreHook(func(p *resp.Peer, cmd string, _ ...string) bool {
			if cmd == "EVALSHA" {
				p.WriteError("MOVED 1 " + third.Addr())
			}
			return cmd == "EVALSHA"
		})
	}
	c, err := New(Config{Redis: h.client, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if a := c.requests.Acquire(t.Context(), lease.Request{Lock: "x", Lease: time.Hour}); a.Verdict != lease.Granted {
		t.Fatalf("%q, %v", a.Verdict, a.Err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.untils[third.Port()]) == 0 {
		t.Error("its client has not the hooks of the others")
	}
}

// A published message never shortens the longest lease of a lock. Otherwise any user that may publish could end
// the wait for a holder that the server has forgotten.
func TestOverheardLeaseIsNotShorter(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		heard, stop := hearing(w, c)
		defer stop()
		held := w.lock(c, "x", time.Minute)
		now := time.Now().Add(time.Second).UnixMicro()
		forged := grantMessage{lock: "x", owner: "o", now: now, floor: now, longest: 1}
		if err := c.cfg.Redis.Publish(w.Context(), c.cfg.Prefix+"granted", forged.message()).Err(); err != nil {
			w.Fatal(err)
		}
		heard()
		if k, _ := c.observed.Last("x"); k.Floor != now || k.Longest != time.Minute.Microseconds() {
			w.Errorf("remembered %+v", k)
		}
		w.release(held)
	})
}

// A lock is remembered for as long as a lease of it may last, however short [Config.Idle] is: by the server, and
// by the clients that remind it.
func TestShortIdleOutlastsTheLeases(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{Idle: time.Millisecond})
		defer closeAll()
		l := w.lock(c, "x", time.Minute)
		w.pass(50 * time.Second)
		if l.Context().Err() != nil || len(w.rows("x")) != 1 {
			w.Fatalf("%v, rows %+v", context.Cause(l.Context()), w.rows("x"))
		}
		if err := c.cfg.Redis.FlushAll(w.Context()).Err(); err != nil {
			w.Fatal(err)
		}
		if a := c.requests.Acquire(w.Context(), lease.Request{Lock: "x"}); a.Verdict != lease.Closed {
			w.Errorf("forgotten while it is held: %q, want %q", a.Verdict, lease.Closed)
		}
		w.pass(40 * time.Second)
		if l.Context().Err() != nil {
			w.Errorf("not put back: %v", context.Cause(l.Context()))
		}
	})
}

// Redis counts in milliseconds, and to a script no idle time means a lock that stays.
func TestIdleOfLessThanAMillisecondIsRefused(t *testing.T) {
	inBubble(t, func(w *wire) {
		r := w.redis(-1)
		defer r.Close()
		for _, idle := range []time.Duration{-1, 1, time.Millisecond - 1} {
			if c, err := New(Config{Redis: r, Idle: idle}); err == nil {
				w.Errorf("Idle of %v is accepted", idle)
				_ = c.Close()
			}
		}
	})
}

// A subscription breaks with the grant on it: its waiter asks at once, and not when it would have anyway. By then the row would be another's.
func TestWaiterAsksWhenItsSubscriptionBreaks(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *wire) {
		other := w.beside()
		holder, closeHolder := other.client(Config{})
		defer closeHolder()
		c, closeAll := w.client(Config{})
		defer closeAll()
		held := other.lock(holder, "x", time.Minute)
		got := make(chan error, 1)
		go func() {
			_, err := c.Mutex("x").Lock(w.Context())
			got <- err
		}()
		w.pass(100 * time.Millisecond)
		w.cut(1)
		other.release(held)
		w.pass(redisstore.PatienceInLine / 10)
		select {
		case err := <-got:
			if err != nil {
				w.Error(err)
			}
		default:
			w.Error("it still waits")
			<-got
		}
	})
}

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
	told, heard := make(chan string, 100), make(chan []lease.GrantEvent, 100)
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
	hearing.Go(func() { c.requests.Subscribe(ctx, func(n []lease.GrantEvent) { heard <- n }) })
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

// acquireAll has n callers acquire a lock each at the same time, and returns how many got theirs.
func acquireAll(w *wire, c *Client, name string, n int) (granted int) {
	var callers sync.WaitGroup
	verdicts := make([]lease.Verdict, n)
	for i := range n {
		callers.Go(func() {
			verdicts[i] = c.requests.Acquire(w.Context(), lease.Request{Lock: fmt.Sprint(name, i), Lease: time.Minute}).Verdict
		})
	}
	callers.Wait()
	for _, v := range verdicts {
		if v == lease.Granted {
			granted++
		}
	}
	return granted
}

// Callers that come while a round trip is under way share the next one.
func TestCallersTravelTogether(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		w.release(w.lock(c, "warm", time.Minute))
		w.slow(100 * time.Millisecond)
		w.sent()
		start := time.Now()
		if n := acquireAll(w, c, "x", 64); n != 64 {
			w.Errorf("%d granted", n)
		}
		sent, total := w.sent(), 0
		for _, n := range sent {
			total += n
		}
		if len(sent) > 10 { // with those that set up connections
			w.Errorf("pipelines of %v calls", sent)
		}
		if took := time.Since(start); total < 64 || took > 2*time.Second {
			w.Errorf("%d calls took %v", total, took)
		}
		w.fail()
	})
}

// A round trip that hangs holds up those that come after it for a part of its time-out.
func TestHungRoundTripHoldsUpNobodyForLong(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{Timeout: 4 * time.Second})
		defer closeAll()
		w.release(w.lock(c, "warm", time.Minute))
		w.fail("deaf")
		var first sync.WaitGroup
		first.Go(func() { c.requests.Acquire(w.Context(), lease.Request{Lock: "first", Lease: time.Minute}) })
		synctest.Wait()
		w.fail()
		start := time.Now()
		if n := acquireAll(w, c, "x", 10); n != 10 {
			w.Errorf("%d granted", n)
		}
		if took := time.Since(start); took > 1100*time.Millisecond {
			w.Errorf("took %v", took)
		}
		first.Wait()
		start = time.Now()
		if n := acquireAll(w, c, "y", 10); n != 10 || time.Since(start) > 0 { // no round trip is under way any more
			w.Errorf("%d granted after %v", n, time.Since(start))
		}
	})
}
