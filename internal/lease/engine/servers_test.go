package engine

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	resp "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
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
	var requests []Request
	for i := range 20 {
		requests = append(requests, Request{Lock: strconv.Itoa(i), ID: strconv.Itoa(i), Lease: time.Hour})
	}
	for range 3 { // the same grants again
		for _, a := range c.AcquireAll(t.Context(), requests) {
			if a.Verdict != Granted {
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
	if at, ok := c.EstimatedTime(); !ok || at.Before(times[0].Add(-time.Minute)) || at.After(times[1].Add(time.Minute)) {
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
	var requests []Request
	for i := range 20 {
		requests = append(requests, Request{Lock: strconv.Itoa(i), Lease: time.Hour})
	}
	verdicts := map[Verdict]int{}
	for _, a := range c.AcquireAll(t.Context(), requests) {
		verdicts[a.Verdict]++
		if a.Verdict == Unknown && !errors.Is(a.Err, ErrUnknown) {
			t.Error(a.Err)
		}
	}
	if verdicts[Granted] == 0 || verdicts[Unknown] == 0 || verdicts[Granted]+verdicts[Unknown] != len(requests) {
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
	if a := c.Acquire(t.Context(), Request{Lock: "x", Lease: time.Hour}); a.Verdict != Granted {
		t.Fatalf("%q, %v", a.Verdict, a.Err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.untils[third.Port()]) == 0 {
		t.Error("its client has not the hooks of the others")
	}
}
