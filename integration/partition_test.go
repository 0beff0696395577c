package integration

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// split is a trio whose master can be cut off from its replicas, the Sentinels and one part of the clients, while the other
// part still reaches it, and it alone.
type split struct {
	*trio
	master *proxy   // the way of the majority: replicas, Sentinels, and clients by URL
	far    []*proxy // the ways of the minority to the Sentinels
	FarURL string

	mu      sync.Mutex        // of farView: proxies read it while startSplit still adds to it
	farView map[string]string // port as the Sentinels know it -> port of the minority's way there
}

func startSplit(t *testing.T) *split {
	t.Helper()
	s := &split{farView: map[string]string{}}
	s.trio = startTrio(t, func(master string) string {
		s.master = startProxy(t, master, nil, nil)
		s.see(s.master.addr(), master) // directly
		return s.master.addr()
	})
	var addrs []string
	for _, sentinel := range s.sentinels {
		way := startProxy(t, sentinel.instance.addr(), nil, s.asFarSees)
		s.far = append(s.far, way)
		addrs = append(addrs, way.addr())
		s.see(sentinel.instance.addr(), way.addr())
	}
	s.FarURL = "redis-sentinel://" + strings.Join(addrs, ",") + "/" + masterName
	return s
}

// see has the minority take a way to an address.
func (s *split) see(addr, way string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.farView[portOf(addr)] = portOf(way)
}

// asFarSees rewrites the addresses in a Sentinel's reply. Ports that the kernel chooses have five digits, so it stays as long.
func (s *split) asFarSees(reply []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for port, other := range s.farView {
		reply = bytes.ReplaceAll(reply, []byte("\r\n"+port+"\r\n"), []byte("\r\n"+other+"\r\n"))
	}
	return reply
}

func portOf(addr string) string { _, port, _ := net.SplitHostPort(addr); return port }

func (s *split) Cut() {
	s.master.Cut()
	for _, p := range s.far {
		p.Cut()
	}
}

func (s *split) Heal() {
	s.master.Mend()
	for _, p := range s.far {
		p.Mend()
	}
}

// A master that is cut off from its replicas grants nothing that counts: no tick runs twice, and no more runs are
// alive at once than there are slots (P1, P3, P4, P5). It still takes writes, from cronclave's replicas that reach no
// other server. Every replica that was not cut off goes on with the new master.
// Promise: P1, P3, P5
func TestIsolatedMaster(t *testing.T) {
	slow(t)
	t.Parallel()
	s := startSplit(t)
	c := newClusterAt(t, s.URL, `
[redis]
acked_replicas = 1
ack_timeout = "200ms"

[defaults]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
start_deadline = "50s"
lease = "3s"

[jobs.a]
[jobs.b]

[jobs.wide]
command = 'exec "$SCRIBE" -for 10s -beat 20ms'
parallel = 3
per_tick = 1
per_replica = 1
kill_grace = "1s"
`)
	var replicas []*replica
	far := map[string]*replica{}
	for i, url := range []string{s.FarURL, s.FarURL, s.URL, s.URL, s.URL} {
		r := c.startAt(t, fmt.Sprintf("r%d", i+1), url)
		replicas = append(replicas, r)
		if url == s.FarURL {
			far[r.Name] = r
		}
	}
	for _, r := range replicas {
		r.WaitLog(t, soon, "announcement", announced)
	}
	first := max(c.awaitTick(t, soon, "a", 0).Tick, c.awaitTick(t, soon, "b", 0).Tick)
	run := c.await(t, startTimeout, "wide", "run on the far side", func(l line) bool { return l.Event == "start" && far[l.Replica] != nil })

	s.Cut()
	cut := redisTime(t, c.Client)
	now := s.awaitFailover(t, s.master.addr())
	back := redisTime(t, c.Client)
	for _, job := range []string{"a", "b"} {
		l := c.awaitTick(t, startTimeout, job, back.Unix()+4)
		if far[l.Replica] != nil {
			t.Errorf("a replica that was cut off ran a tick: %v", l)
		}
	}
	for _, r := range far {
		r.WaitLog(t, soon, "word that nothing is acknowledged", message("due ticks wait"))
	}
	if err := s.servers[0].Client.Set(t.Context(), "still", "there", 0).Err(); err != nil {
		t.Error("the master that was cut off takes no writes, which is what this test is about:", err)
	}
	wantDead(t, of(run.RunID, c.lines(t, "wide")))

	s.Heal()
	healed := redisTime(t, c.Client)
	for name := range far {
		c.await(t, startTimeout, "", "run on "+name, func(l line) bool { return l.Event == "start" && l.Replica == name && l.Micros > healed.UnixMicro() })
	}
	last := redisTime(t, c.Client).Unix()
	for _, job := range []string{"a", "b"} {
		c.awaitTick(t, startTimeout, job, last)
	}
	checkNothingLost(t, c, []string{"a", "b"}, first, last, cut)
	for _, r := range replicas { // no need to wait for the long runs
		r.Kill(t)
	}

	runs := starts(c.lines(t, ""))
	checkOnce(t, runs, 1)
	checkNotEarly(t, runs)
	c.checkTokensGrow(t, slices.DeleteFunc(slices.Clone(runs), func(l line) bool { return l.Job == "wide" }))
	checkAtMost(t, c.lines(t, "a"), 1)
	checkAtMost(t, c.lines(t, "b"), 1)
	checkAtMost(t, c.lines(t, "wide"), 3)
	t.Logf("no new master for %v, now %s; %d runs", back.Sub(cut).Round(time.Millisecond), now.instance.addr(), len(runs))
}
