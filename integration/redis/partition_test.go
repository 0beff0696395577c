package redis

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// split is a trio whose master can be cut off from its replicas, the Sentinels and one part of the clients, while the other
// part still reaches it, and it alone.
type split struct {
	*harness.Trio
	master *harness.Proxy   // the way of the majority: replicas, Sentinels, and clients by URL
	far    []*harness.Proxy // the ways of the minority to the Sentinels
	FarURL string

	mu      sync.Mutex        // of farView: proxies read it while startSplit still adds to it
	farView map[string]string // port as the Sentinels know it -> port of the minority's way there
}

func startSplit(t *testing.T) *split {
	t.Helper()
	s := &split{farView: map[string]string{}}
	s.Trio = harness.StartTrio(t, func(master string) string {
		s.master = harness.StartProxy(t, master, nil, nil)
		s.see(s.master.Addr(), master) // directly
		return s.master.Addr()
	})
	var addrs []string
	for _, sentinel := range s.Sentinels {
		way := harness.StartProxy(t, sentinel.Instance.Addr(), nil, s.asFarSees)
		s.far = append(s.far, way)
		addrs = append(addrs, way.Addr())
		s.see(sentinel.Instance.Addr(), way.Addr())
	}
	s.FarURL = "redis-sentinel://" + strings.Join(addrs, ",") + "/" + harness.MasterName
	return s
}

// see has the minority take a way to an address.
func (s *split) see(addr, way string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.farView[harness.PortOf(addr)] = harness.PortOf(way)
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
	testtier.Slow(t)
	t.Parallel()
	s := startSplit(t)
	c := harness.NewClusterAt(t, s.URL, `
[redis]
acked_replicas = 1
ack_timeout = "200ms"

[history]
runs = 1000

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
	var replicas []*harness.Replica
	far := map[string]*harness.Replica{}
	for i, url := range []string{s.FarURL, s.FarURL, s.URL, s.URL, s.URL} {
		r := c.StartAt(t, fmt.Sprintf("r%d", i+1), url)
		replicas = append(replicas, r)
		if url == s.FarURL {
			far[r.Name] = r
		}
	}
	for _, r := range replicas {
		r.WaitLog(t, harness.Soon, "announcement", harness.Announced)
	}
	first := max(c.AwaitTick(t, harness.Soon, "a", 0).Tick, c.AwaitTick(t, harness.Soon, "b", 0).Tick)
	run := c.Await(t, harness.StartTimeout, "wide", "run on the far side", func(l harness.Line) bool { return l.Event == "start" && far[l.Replica] != nil })

	s.Cut()
	cut := harness.RedisTime(t, c.Client)
	now := s.AwaitFailover(t, s.master.Addr())
	back := harness.RedisTime(t, c.Client)
	for _, job := range []string{"a", "b"} {
		l := c.AwaitTick(t, harness.StartTimeout, job, back.Unix()+4)
		if far[l.Replica] != nil {
			t.Errorf("a replica that was cut off ran a tick: %v", l)
		}
	}
	for _, r := range far {
		r.WaitLog(t, harness.Soon, "word that nothing is acknowledged", harness.MessageHas("due ticks wait"))
	}
	if err := s.Servers[0].Client.Set(t.Context(), "still", "there", 0).Err(); err != nil {
		t.Error("the master that was cut off takes no writes, which is what this test is about:", err)
	}
	harness.WantDead(t, harness.RunLines(run.RunID, c.Lines(t, "wide")))

	s.Heal()
	healed := harness.RedisTime(t, c.Client)
	for name := range far {
		c.Await(t, harness.StartTimeout, "", "run on "+name, func(l harness.Line) bool {
			return l.Event == "start" && l.Replica == name && l.Micros > healed.UnixMicro()
		})
	}
	last := harness.RedisTime(t, c.Client).Unix()
	for _, job := range []string{"a", "b"} {
		c.AwaitTick(t, harness.StartTimeout, job, last)
	}
	checkNothingLost(t, c, []string{"a", "b"}, first, last, cut)
	for _, r := range replicas { // no need to wait for the long runs
		r.Kill(t)
	}

	runs := harness.Starts(c.Lines(t, ""))
	harness.CheckOnce(t, runs, 1)
	harness.CheckNotEarly(t, runs)
	c.CheckTokensGrow(t, slices.DeleteFunc(slices.Clone(runs), func(l harness.Line) bool { return l.Job == "wide" }))
	harness.CheckAtMost(t, c.Lines(t, "a"), 1)
	harness.CheckAtMost(t, c.Lines(t, "b"), 1)
	harness.CheckAtMost(t, c.Lines(t, "wide"), 3)
	t.Logf("no new master for %v, now %s; %d runs", back.Sub(cut).Round(time.Millisecond), now.Instance.Addr(), len(runs))
}
