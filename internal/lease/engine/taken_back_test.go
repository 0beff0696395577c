package engine

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/testtier"
)

// latency is a network on which scripts need a while.
type latency struct{ d time.Duration }

func (latency) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h latency) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.pass(cmd)
		return next(ctx, cmd)
	}
}
func (h latency) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.pass(cmds[0])
		return next(ctx, cmds)
	}
}

// pass leaves alone what go-redis does under a lock, where fake time would stand still.
func (h latency) pass(cmd redis.Cmder) {
	if cmd.Name() == "evalsha" {
		<-time.After(h.d)
	}
}

// Close waits until a first try under way has taken back its grant.
// Promise: P9
func TestCloseDuringTheFirstTryLeavesNoGhost(t *testing.T) {
	for name, try := range map[string]func(ctx context.Context, c *Client) error{
		"a mutex": func(ctx context.Context, c *Client) error {
			_, _, err := c.Mutex("x", WithLease(10*time.Minute)).TryLock(ctx)
			return err
		},
		"a set": func(ctx context.Context, c *Client) error {
			_, _, err := c.MultiLock("x").With(WithLease(10 * time.Minute)).TryLock(ctx)
			return err
		},
		"a waiter": func(ctx context.Context, c *Client) error {
			_, err := c.Mutex("x", WithLease(10*time.Minute)).Lock(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *wire) {
				r := w.redis(-1)
				r.AddHook(latency{time.Millisecond})
				c, err := New(Config{Redis: r, Clock: w.clock})
				if err != nil {
					w.Fatal(err)
				}
				w.release(w.lock(c, "warm", time.Minute))
				ls, _, _ := c.MultiLock("warm").TryLock(w.Context())
				_ = ls.Release(w.Context())
				w.fail("deaf")
				tried := make(chan error)
				go func() { tried <- try(w.Context(), c) }()
				w.pass(500 * time.Millisecond)
				w.fail() // only the first reply is lost
				if err := c.Close(); err != nil {
					w.Error(err)
				}
				_ = r.Close() // as its owner does next
				<-tried
				if rows := w.rows("x"); len(rows) != 0 {
					w.Errorf("a ghost holds the lock for %v", time.Until(rows[0].Expiry))
				}
			})
		})
	}
}

// Close waits for it on a quorum, too.
func TestQuorumCloseDuringTheFirstTryLeavesNoGhost(t *testing.T) {
	inBubble(t, func(w *wire) {
		cfg := Config{Clock: w.clock}
		var wires []*wire
		var masters []*redis.Client
		for range 3 {
			n := w.another()
			r := n.redis(-1)
			r.AddHook(latency{time.Millisecond})
			wires, masters = append(wires, n), append(masters, r)
			cfg.Quorum = append(cfg.Quorum, r)
		}
		c, err := New(cfg)
		if err != nil {
			w.Fatal(err)
		}
		for end := w.clock() + 5*time.Second; w.clock() < end; w.pass(time.Second) {
			w.release(w.lock(c, "x", time.Second))
		}
		for _, n := range wires {
			n.fail("deaf")
		}
		tried := make(chan error)
		go func() {
			_, _, err := c.Mutex("x", WithLease(10*time.Minute)).TryLock(w.Context())
			tried <- err
		}()
		w.pass(500 * time.Millisecond)
		closed := make(chan error)
		go func() { closed <- c.Close() }()
		w.pass(2*c.cfg.Timeout - 505*time.Millisecond)
		for _, n := range wires { // just before the try ends: no reply to it is heard any more
			n.fail()
		}
		if err := <-tried; !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrClosed) {
			w.Error(err)
		}
		if err := <-closed; err != nil {
			w.Error(err)
		}
		for _, m := range masters {
			_ = m.Close()
		}
		ghosts := 0
		for _, n := range wires {
			r := n.beside().redis(-1)
			if row := r.HGet(w.Context(), "locking:{x}", "r0").Val(); row != "" && row[0] != '-' {
				ghosts++
			}
			_ = r.Close()
			n.Server.Close()
		}
		if ghosts > 1 { // one that is not heard when the client closes keeps its vote until the lease would have ended
			w.Errorf("%d nodes have a ghost", ghosts)
		}
	})
}

// stray loses the connection of the first pipeline, whose request arrives later all the same.
type stray struct {
	left  atomic.Int32
	after time.Duration
	done  chan struct{}
}

func (*stray) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*stray) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (s *stray) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if s.left.Add(-1) != 0 {
			return next(ctx, cmds)
		}
		again := make([]redis.Cmder, len(cmds))
		for i, c := range cmds {
			again[i] = redis.NewCmd(context.Background(), c.Args()...)
			c.SetErr(io.ErrUnexpectedEOF)
		}
		go func() {
			defer close(s.done)
			<-time.After(s.after)
			_ = next(context.Background(), again)
		}()
		return io.ErrUnexpectedEOF
	}
}

// A try whose connection breaks leaves nothing, even if it arrives after another try was refused and the holder
// has released the lock.
// Promise: P9
func TestTryThatArrivesAfterARefusalLeavesNoGhost(t *testing.T) {
	inBubble(t, func(w *wire) {
		r := w.redis(-1)
		s := &stray{after: 500 * time.Millisecond, done: make(chan struct{})}
		r.AddHook(s)
		c, err := New(Config{Redis: r, Clock: w.clock})
		if err != nil {
			w.Fatal(err)
		}
		defer r.Close()
		defer c.Close()
		other, closeOther := w.beside().client(Config{})
		defer closeOther()
		w.release(w.lock(c, "warm", time.Minute))
		held := w.lock(other, "x", time.Minute)
		s.left.Store(1)
		l, ok, err := c.Mutex("x", WithLease(10*time.Minute)).TryLock(w.Context())
		if l != nil || ok || err != nil {
			w.Fatal(l, ok, err)
		}
		w.pass(100 * time.Millisecond)
		w.release(held)
		<-s.done
		w.pass(10 * time.Second)
		if rows := w.rows("x"); len(rows) != 0 {
			w.Errorf("TryLock said that it is held by another; a ghost holds it for %v", time.Until(rows[0].Expiry))
		}
	})
}

// Callers that give up while the server is away leave a bounded number of calls in the background.
// Promise: P9
func TestWhatIsGivenUpIsBounded(t *testing.T) {
	if testtier.RaceEnabled {
		t.Skip("eleven thousand goroutines: make test-long runs it without the race detector")
	}
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		w.release(w.lock(c, "warm", time.Minute))
		w.fail("mute")
		before := runtime.NumGoroutine()
		for range mostGivenUp + 1000 {
			ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
			_, _, _ = c.Mutex("x").TryLock(ctx)
			cancel()
		}
		if n := runtime.NumGoroutine() - before; n > mostGivenUp+100 {
			w.Errorf("%d goroutines more", n)
		}
		w.fail()
	})
}

// A second GiveBack does not succeed when another client has the tick by now, since the first never reached the
// server.
func TestGiveBackThatWasNeverHeard(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		other, closeOther := w.beside().client(Config{})
		defer closeOther()
		c.Inspect(w.Context(), []InspectRequest{{Lock: "x", Permanent: true, Schedule: "s"}})
		w.pass(time.Minute)
		now := time.Now().Truncate(time.Second)
		r := Request{Lock: "x", ID: "one", Permanent: true, Lease: 3 * time.Second, Trigger: "schedule", Tick: &Tick{
			At: now, Previous: now.Add(-time.Second), Schedule: "s"}}
		l := c.Acquire(w.Context(), r).Lease
		w.fail("mute")
		_ = RunOf(l).Undo(w.Context())
		w.pass(10 * time.Second)
		a := other.Acquire(w.Context(), Request{Lock: "x", Permanent: true, Lease: time.Minute, Trigger: "recovery", Adopt: "one"})
		if a.Verdict != Granted {
			w.Fatal(a.Verdict, a.Outcome, a.Err)
		}
		w.fail()
		w.pass(5 * time.Second)
		if err := RunOf(l).Undo(w.Context()); err == nil {
			w.Error("the second GiveBack is no error: the tick is said to be open, and another runs it")
		}
		w.release(a.Lease)
	})
}
