package locking

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/quorum"
	"github.com/cronclave/cronclave/internal/testtier"
)

// freezing nodes stop, all together, before one of them accepts a register; requests do not arrive until they go on.
type freezing struct {
	state atomic.Int32
}

const (
	beforeAccept int32 = iota
	frozen
	thawed
)

func (*freezing) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*freezing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (f *freezing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		const keysOfAccept = 4 // no other script of a quorum has as many
		if args := cmd.Args(); len(args) > 2 && args[2] == keysOfAccept {
			f.state.CompareAndSwap(beforeAccept, frozen)
		}
		if f.state.Load() != frozen {
			return next(ctx, cmd)
		}
		<-ctx.Done()
		cmd.SetErr(ctx.Err())
		return cmd.Err()
	}
}

// A majority freezes after it has voted for a row and before it accepts the register: a minority has the grant, which is not confirmed. The claimant asks
// again when the majority is back, and its tick is not lost meanwhile: its votes are not taken back, or the run would look dead in a register that has it.
// Promise: P5, quorum
func TestQuorumUnconfirmedGrantIsKept(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, masters, closeAll := w.quorum(5)
		defer closeAll()
		if err := w.lock(c, "warm", time.Second).Release(w.Context()); err != nil {
			t.Fatal(err)
		}
		c.requests.Inspect(w.Context(), []lease.InspectRequest{{Lock: "{j}:job", Permanent: true, Schedule: "s"}}) // it begins now
		w.pass(time.Second)
		var nodes freezing
		for _, m := range masters[:3] {
			m.AddHook(&nodes)
		}
		at := time.Now().Truncate(time.Second)
		r := lease.Request{Lock: "{j}:job", ID: "run", Lease: 30 * time.Second, Trigger: "schedule", Permanent: true,
			Tick: &lease.Tick{At: at, Previous: at.Add(-time.Second), Deadline: at.Add(time.Minute), Schedule: "s", IfLate: "missed"}}
		if a := c.requests.Acquire(w.Context(), r); a.Verdict != lease.Unknown || nodes.state.Load() != frozen {
			t.Fatalf("its majority freezes: %+v", a)
		}
		if a := c.requests.Acquire(w.Context(), r); a.Verdict != lease.Unknown {
			t.Errorf("asked again meanwhile: %+v", a)
		}
		nodes.state.Store(thawed)
		w.pass(3 * time.Second)
		if s := c.requests.Inspect(w.Context(), []lease.InspectRequest{{Lock: r.Lock, Permanent: true}})[0]; s.Err != nil || len(s.Orphans) > 0 {
			t.Errorf("when the majority is back: %+v", s)
		}
		a := c.requests.Acquire(w.Context(), r)
		for tries := 0; a.Unsure() && tries < 10; tries++ { // its own late votes may be in its way
			w.pass(100 * time.Millisecond)
			a = c.requests.Acquire(w.Context(), r)
		}
		if a.Verdict != lease.Granted {
			t.Errorf("asked again: %+v", a)
		}
	})
}

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
		if a := c.requests.Acquire(w.Context(), lease.Request{Lock: name, Lease: 10 * time.Second}); a.Verdict == lease.Granted {
			return leaseOf(a.Run), w.clock() - begin
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
		job := lease.Request{Lock: "job", Permanent: true, AnyLimit: true, Tick: &lease.Tick{At: at, Previous: at.Add(-time.Second), Schedule: "s"}}
		if s := a.requests.Inspect(w.Context(), []lease.InspectRequest{{Lock: "job", Permanent: true, Schedule: "s"}})[0]; s.Err != nil {
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
		if again := b.requests.Acquire(w.Context(), job); again.Verdict != lease.Decided {
			w.Errorf("a tick of before the loss: %s, %v", again.Verdict, again.Err)
		}
	})
}

// far is a node that all requests reach so much later.
type far time.Duration

func (far) DialHook(next redis.DialHook) redis.DialHook                                  { return next }
func (far) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook { return next }
func (d far) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "evalsha") {
			<-time.After(time.Duration(d))
		}
		return next(ctx, cmd)
	}
}

// A node that is merely far gets a release, too, although it seems not to answer when that is sent.
// Promise: P4
func TestQuorumReleaseReachesAFarNode(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, masters, closeAll := w.quorum(3)
		defer closeAll()
		w.release(w.lock(c, "warm", time.Minute))
		masters[2].AddHook(far(200 * time.Millisecond))
		l := w.lock(c, "m", time.Hour)
		w.pass(2 * quorum.SpreadAfter) // it is being told of the lease
		w.release(l)
		if err := c.Close(); err != nil {
			w.Error(err)
		}
		if row := masters[2].HGet(w.Context(), "locking:{m}", "r0").Val(); row != "" && row[0] != '-' {
			w.Errorf("a ghost has its vote: %q", row)
		}
	})
}

// Something else is under the key of a lock on a majority of masters: it is refused at once, and a waiter for it
// ends at once. On a minority it costs nothing.
// Promise: quorum
func TestQuorumSomethingElseUnderTheKey(t *testing.T) {
	inBubble(t, func(w *wire) {
		servers, masters, closeServers := w.masters(5)
		defer closeServers()
		c, _, closeAll := w.quorumOver(servers)
		defer closeAll()
		w.release(w.lock(c, "m", time.Second))
		w.pass(time.Second)
		foul := func(nodes []*redis.Client, lock string) {
			for _, m := range nodes {
				m.Set(w.Context(), "locking:{"+lock+"}", "a report", 0)
			}
		}
		at := w.Start.Add(w.clock()).Truncate(time.Second)
		tick := &lease.Tick{At: at, Previous: at.Add(-time.Second), Schedule: "s"}
		foul(masters[:2], "few")
		foul(masters[:2], "few-job")
		w.release(w.lock(c, "few", time.Second))
		if a := c.requests.Acquire(w.Context(), lease.Request{Lock: "few-job", Trigger: "manual"}); a.Verdict != lease.Granted {
			w.Errorf("on a minority: %s, %v", a.Verdict, a.Err)
		} else {
			w.release(leaseOf(a.Run))
		}
		foul(masters[1:4], "m")
		foul(masters[1:4], "job")
		for name, ask := range map[string]func() error{
			"try":  func() error { return c.requests.Acquire(w.Context(), lease.Request{Lock: "m"}).Err },
			"wait": func() error { _, err := c.Mutex("m").Lock(w.Context()); return err },
			"tick": func() error { return c.requests.Acquire(w.Context(), lease.Request{Lock: "job", Tick: tick}).Err },
			"look": func() error { return c.requests.Inspect(w.Context(), []lease.InspectRequest{{Lock: "job"}})[0].Err },
		} {
			begin := w.clock()
			err := ask()
			if !errors.Is(err, ErrRefused) || !errors.Is(err, ErrUnknown) {
				w.Errorf("%s: %v", name, err)
				continue
			}
			if took := w.clock() - begin; took > 100*time.Millisecond {
				w.Errorf("%s: refused after %v", name, took)
			}
			key := "locking:{m}"
			if name == "tick" || name == "look" {
				key = "locking:{job}"
			}
			for i := range masters {
				if named := strings.Contains(err.Error(), address(i)); named != (i >= 1 && i < 4) {
					w.Errorf("%s: master %d is named: %v: %v", name, i, named, err)
				}
			}
			if !strings.Contains(err.Error(), key) {
				w.Errorf("%s: %v", name, err)
			}
		}
	})
}

// The error of a quorum without a majority names the masters that have failed, and no other.
// Promise: quorum
func TestQuorumErrorNamesThoseThatFailed(t *testing.T) {
	inBubble(t, func(w *wire) {
		servers, _, closeServers := w.masters(5)
		defer closeServers()
		c, ways, closeAll := w.quorumOver(servers)
		defer closeAll()
		w.release(w.lock(c, "m", time.Second))
		w.pass(time.Second)
		for _, i := range []int{0, 2, 3} {
			ways[i].fail("mute")
		}
		for range 2 { // the second time they are known to be silent
			err := c.requests.Acquire(w.Context(), lease.Request{Lock: "m"}).Err
			if !errors.Is(err, ErrUnknown) || errors.Is(err, ErrRefused) {
				w.Fatal(err)
			}
			for i := range servers {
				if named := strings.Contains(err.Error(), address(i)); named != (i == 0 || i == 2 || i == 3) {
					w.Errorf("master %d is named: %v: %v", i, named, err)
				}
			}
		}
	})
}

// misconf is a node that refuses all that writes, as Redis does when its disk is full.
type misconf struct {
	on    atomic.Bool
	asked atomic.Int64 // commands
}

type misconfErr struct{}

func (misconfErr) Error() string {
	return "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk"
}
func (misconfErr) RedisError() {}

func (*misconf) DialHook(next redis.DialHook) redis.DialHook { return next }
func (m *misconf) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if m.on.Load() && strings.HasPrefix(cmd.Name(), "evalsha") {
			cmd.SetErr(misconfErr{})
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}
func (m *misconf) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if m.on.Load() && strings.HasPrefix(cmds[0].Name(), "evalsha") {
			m.asked.Add(int64(len(cmds)))
			for _, c := range cmds {
				c.SetErr(misconfErr{})
			}
			return misconfErr{}
		}
		return next(ctx, cmds)
	}
}

// taught counts how often a node is taught its scripts.
type taught struct{ n atomic.Int32 }

func (*taught) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*taught) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (m *taught) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "script" {
			m.n.Add(1)
		}
		return next(ctx, cmds)
	}
}

// A node that answers with errors does not get the calls that it missed again and again, nor do the others get
// their scripts again.
// Promise: quorum
func TestQuorumLeavesANodeThatRefusesAlone(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, masters, closeAll := w.quorum(3)
		defer closeAll()
		pairs := func(d time.Duration) (n int) {
			for end := w.clock() + d; w.clock() < end; w.pass(50 * time.Millisecond) {
				a := c.requests.Acquire(w.Context(), lease.Request{Lock: "m", Lease: 30 * time.Second})
				if a.Verdict != lease.Granted {
					w.Fatal(a.Verdict, a.Err)
				}
				if err := leaseOf(a.Run).Release(w.Context()); err != nil && !errors.Is(err, ErrUnknown) {
					w.Fatal(err)
				}
				n++
			}
			return n
		}
		pairs(5 * time.Second)
		sick, healthy := &misconf{}, &taught{}
		masters[0].AddHook(sick)
		masters[1].AddHook(healthy)
		pairs(5 * time.Second)
		healthy.n.Store(0)
		sick.on.Store(true)
		n := pairs(10 * time.Second)
		if healthy.n.Load() > 10 || sick.asked.Load() > int64(2*n) {
			w.Errorf("in %d pairs a healthy node is taught %d times, and the sick one told %d times what it owes", n, healthy.n.Load(), sick.asked.Load())
		}
	})
}

// quorum returns a client of n masters in the bubble, and one of each of them; call close.
func (w *wire) quorum(n int) (c *Client, masters []*redis.Client, closeAll func()) {
	w.Helper()
	cfg := Config{Clock: w.clock}
	var wires []*wire
	for range n {
		wires = append(wires, w.another())
		masters = append(masters, wires[len(wires)-1].redis(-1))
		cfg.Quorum = append(cfg.Quorum, masters[len(masters)-1])
	}
	c, err := New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	return c, masters, func() {
		if err := c.Close(); err != nil {
			w.Error(err)
		}
		for i, m := range masters {
			_ = m.Close()
			wires[i].Server.Close()
		}
	}
}

// A master that has forgotten votes again also where the only lock that is used is one for which others are asked first.
// Promise: quorum
func TestQuorumNoticesThatANodeHasForgottenWhichIsNotNeeded(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, masters, closeAll := w.quorum(5)
		defer closeAll()
		pairs := func(d time.Duration) {
			for end := w.clock() + d; w.clock() < end; w.pass(time.Second) {
				if err := w.lock(c, "m", time.Second).Release(w.Context()); err != nil {
					w.Fatal(err)
				}
			}
		}
		state := func(node int) string { return masters[node].HGet(w.Context(), "locking:quorum", "state").Val() }
		pairs(5 * time.Second)
		for _, node := range []int{3, 4} { // the others are asked first
			if state(node) != "voting" {
				w.Errorf("node %d at the beginning: %q", node, state(node))
			}
			masters[node].FlushAll(w.Context())
			pairs(2 * quorum.RefreshAfter)
			if state(node) != "voting" {
				w.Errorf("node %d has forgotten, and is %q", node, state(node))
			}
		}
	})
}
