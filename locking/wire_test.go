package locking

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/leasetest"
	redisstore "github.com/cronclave/cronclave/internal/lease/redis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

// runOf returns the lease with the methods for schedulers.
func runOf(l *Lease) run { return run{l} }

// lock takes a mutex.
func (w *wire) lock(c *Client, name string, length time.Duration) *Lease {
	w.Helper()
	a := c.requests.Acquire(w.Context(), lease.Request{Lock: name, Lease: length})
	if a.Verdict != lease.Granted {
		w.Fatalf("lock %s: %q, %v", name, a.Verdict, a.Err)
	}
	return leaseOf(a.Run)
}

// rows are the rows that the server has, seen over a wire of its own.
func (w *wire) rows(lock string) []lease.Row {
	w.Helper()
	other := w.beside()
	c, closeAll := other.client(Config{})
	defer closeAll()
	s := c.requests.Inspect(w.Context(), []lease.InspectRequest{{Lock: lock}})[0]
	if s.Err != nil {
		w.Fatal(s.Err)
	}
	return s.Running
}

// one is the store of a client of one master.
func (c *Client) one() *redisstore.Store {
	s, _ := c.store.(*redisstore.Store)
	return s
}

// FuzzCheckName accepts a name only if it is safe: all keys of a lock whose name is good lie in one hash slot,
// and belong to no other lock.
func FuzzCheckName(f *testing.F) {
	for _, name := range []string{"a", "{a}:b", "{a}{b}", "}{", "{a}:queue", "a:dead:b", "{a}:dead:b"} {
		f.Add(name, "id")
	}
	f.Fuzz(func(t *testing.T, name, id string) {
		if lease.CheckName(name) != nil {
			return
		}
		keys := redisstore.LockKeys(redisstore.LockKey("p:", name), id)
		tag := hashTag(keys[0])
		if tag == "" {
			t.Fatalf("%q has no hash tag", keys[0])
		}
		for _, k := range keys {
			if hashTag(k) != tag {
				t.Errorf("%q has another tag than %q", k, keys[0])
			}
			if own, isName := strings.CutPrefix(k, "p:"); isName && k != keys[0] && strings.Contains(name, "{") && lease.CheckName(own) == nil && !strings.ContainsAny(id, "{}") {
				t.Errorf("the key %q is another lock's name", k)
			}
		}
	})
}

// hashTag is the part of a key that decides its slot, by the rules of Redis Cluster; "" if it is the whole key.
func hashTag(key string) string {
	_, rest, ok := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	if !ok || !closed {
		return ""
	}
	return tag
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	good := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	defer good.Close()
	bad := redis.NewClient(&redis.Options{})
	defer bad.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{})
	defer cluster.Close()
	failover := redis.NewFailoverClient(&redis.FailoverOptions{SentinelAddrs: []string{"127.0.0.1:1"}})
	defer failover.Close()
	for want, cfg := range map[string]Config{
		"Config.Redis is missing":              {},
		"ContextTimeoutEnabled":                {Redis: bad},
		"without it a hung socket can outlast": {Redis: cluster},
		"in the options of Config.Redis":       {Redis: failover},
		"line break":                           {Redis: good, Owner: "a\nb"},
		"must not be negative":                 {Redis: good, Timeout: -1},
		"Config.Idle is -1ns":                  {Redis: good, Idle: -1},
		"Config.AckTimeout must not":           {Redis: good, AckTimeout: -1},
		"Config.AckedReplicas and":             {Redis: good, AckedReplicas: -1},
		"must be less than Config.Timeout":     {Redis: good, AckTimeout: time.Second},
	} {
		c, err := New(cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if c != nil {
			_ = c.Close()
		}
	}
}
