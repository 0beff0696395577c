package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease/quorum"
	"github.com/cronclave/cronclave/internal/testtier"
)

// links are the ways of one client to the masters of a quorum.
type links []*wire

// quorumOver is a client of masters of which it does not reach some; call close.
func (w *wire) quorumOver(servers []*wire, away ...int) (c *Client, ways links, closeAll func()) {
	w.Helper()
	cfg := Config{Clock: w.clock}
	var clients []*redis.Client
	for i, s := range servers {
		way := s.beside()
		clients = append(clients, redis.NewClient(&redis.Options{Addr: address(i), Dialer: way.Dial, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1}))
		ways, cfg.Quorum = append(ways, way), append(cfg.Quorum, clients[len(clients)-1])
	}
	for _, i := range away {
		ways[i].fail("mute")
	}
	c, err := New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	return c, ways, func() {
		for _, way := range ways {
			way.fail()
		}
		if err := c.Close(); err != nil {
			w.Error(err)
		}
		for _, r := range clients {
			_ = r.Close()
		}
	}
}

// address is what a master of [wire.quorumOver] is called.
func address(i int) string { return fmt.Sprintf("127.0.0.%d:1", i+1) }

// masters are n servers without anything, and one client of each.
func (w *wire) masters(n int) (servers []*wire, direct []*redis.Client, closeAll func()) {
	w.Helper()
	for range n {
		servers = append(servers, w.another())
		direct = append(direct, servers[len(servers)-1].redis(-1))
	}
	return servers, direct, func() {
		for i, s := range servers {
			_ = direct[i].Close()
			s.Server.Close()
		}
	}
}

func (w *wire) states(direct []*redis.Client) (voting int) {
	for _, r := range direct {
		if r.HGet(w.Context(), "locking:quorum", "state").Val() == "voting" {
			voting++
		}
	}
	return voting
}

// tryUntil tries to take a mutex every few seconds, and returns when it was granted after the begin, or -1.
func (w *wire) tryUntil(c *Client, name string, most time.Duration) (*Lease, time.Duration) {
	w.Helper()
	for begin := w.clock(); w.clock()-begin < most; w.pass(5 * time.Second) {
		if a := c.Acquire(w.Context(), Request{Lock: name, Lease: 10 * time.Second}); a.Verdict == Granted {
			return a.Lease, w.clock() - begin
		}
	}
	return nil, -1
}

// A new quorum begins without a minority of its masters, which join when they come, and then others may go.
// Promise: quorum
func TestQuorumBeginsWhileAMinorityIsAway(t *testing.T) {
	inBubble(t, func(w *wire) {
		servers, direct, closeServers := w.masters(5)
		defer closeServers()
		c, ways, closeAll := w.quorumOver(servers, 0, 4)
		defer closeAll()
		l, after := w.tryUntil(c, "m", 2*quorum.QuietBefore)
		if l == nil || after < quorum.QuietBefore {
			w.Fatalf("granted after %v", after)
		}
		if n := w.states(direct); n != 3 {
			w.Errorf("%d masters vote", n)
		}
		first := l.Token()
		w.release(l)
		ways[0].fail()
		ways[4].fail()
		for end := w.clock() + time.Minute; w.clock() < end && w.states(direct) < 5; w.pass(time.Second) {
			w.release(w.lock(c, "m", time.Second))
		}
		if n := w.states(direct); n != 5 {
			w.Fatalf("%d masters vote when all are there", n)
		}
		ways[1].fail("mute")
		ways[2].fail("mute")
		if l, _ := w.tryUntil(c, "m", 10*time.Second); l == nil || l.Token() <= first {
			w.Errorf("without two of those with which it began: %v", l)
		} else {
			w.release(l)
		}
	})
}

// One of three masters with which a quorum of five began forgets, and a client comes that reaches only that one and the two that were never there: all
// three seem to be new. While a holder tries to renew its lease they do not begin; nor do they run a tick again, when they do.
// Promise: P3, quorum
func TestQuorumDoesNotBeginBesideAHolder(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, length := range []time.Duration{time.Minute, 10 * time.Minute} {
		t.Run(length.String(), func(t *testing.T) { doesNotBeginBeside(t, length) })
	}
}

func doesNotBeginBeside(t *testing.T, length time.Duration) {
	inBubble(t, func(w *wire) {
		servers, direct, closeServers := w.masters(5)
		defer closeServers()
		a, _, closeA := w.quorumOver(servers, 3, 4)
		defer closeA()
		first, _ := w.tryUntil(a, "m", 2*quorum.QuietBefore)
		if first == nil {
			w.Fatal("not granted")
		}
		w.release(first)
		held := w.lock(a, "m", length)
		w.pass(time.Second) // all that it reaches have its row
		at := w.Start.Add(w.clock()).Truncate(time.Second)
		job := Request{Lock: "job", Permanent: true, AnyLimit: true, Tick: &Tick{At: at, Previous: at.Add(-time.Second), Schedule: "s"}}
		if s := a.Inspect(w.Context(), []InspectRequest{{Lock: "job", Permanent: true, Schedule: "s"}})[0]; s.Err != nil {
			w.Fatal(s.Err)
		}
		direct[2].FlushAll(w.Context())
		b, _, closeB := w.quorumOver(servers, 0, 1)
		defer closeB()
		if l, after := w.tryUntil(b, "m", 2*length); l != nil {
			w.Fatalf("granted %v after the loss, beside a holder: %v", after, held.Context().Err())
		}
		if held.Context().Err() == nil {
			w.Error("a node that has forgotten has renewed the lease")
		}
		direct[2].FlushAll(w.Context())
		l, after := w.tryUntil(b, "m", 4*quorum.QuietBefore)
		if l == nil || after < quorum.QuietBefore {
			w.Fatalf("without a holder, granted after %v", after)
		}
		if l.Token() <= held.Token() {
			w.Errorf("token %d after %d", l.Token(), held.Token())
		}
		w.release(l)
		if again := b.Acquire(w.Context(), job); again.Verdict != Decided {
			w.Errorf("a tick of before the loss: %s, %v", again.Verdict, again.Err)
		}
	})
}
