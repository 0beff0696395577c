package locking

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A reply that is lost leaves the outcome unknown; a request with the same id resolves it.
func TestLostReplyIsResolvedByTheSameID(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		w.release(w.lock(c, "warm", time.Minute))
		w.fail("deaf")
		r := lease.Request{Lock: "x", Lease: time.Minute}
		a := c.requests.Acquire(w.Context(), r)
		if a.Verdict != lease.Unknown || !errors.Is(a.Err, ErrUnknown) || a.ID == "" {
			w.Fatalf("without a reply: %q, %v", a.Verdict, a.Err)
		}
		if len(w.rows("x")) != 1 {
			w.Fatal("the server did not get it")
		}
		w.fail()
		r.ID = a.ID
		again := c.requests.Acquire(w.Context(), r)
		if again.Verdict != lease.Granted || leaseOf(again.Run).Token() != w.rows("x")[0].Token {
			w.Errorf("asked again: %q, %v", again.Verdict, again.Err)
		}
	})
}

// TestTryLockResolvesALostReply finds its own grant again when the reply to it was lost.
// Promise: P5
func TestTryLockResolvesALostReply(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		w.release(w.lock(c, "warm", time.Minute))
		w.cut(2)
		l, ok, err := c.Mutex("x").TryLock(w.Context())
		if err != nil || !ok {
			w.Fatalf("ok %v, %v", ok, err)
		}
		if rows := w.rows("x"); len(rows) != 1 || rows[0].Token != l.Token() {
			w.Errorf("rows %+v, token %d", rows, l.Token())
		}
	})
}

// A caller with an unknown outcome holds nothing, and leaves nothing held.
func TestTryLockThatCannotTellLeavesNoGhost(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		w.release(w.lock(c, "warm", time.Minute))
		w.fail("deaf")
		ctx, cancel := context.WithTimeout(w.Context(), 3*time.Second)
		defer cancel()
		l, ok, err := c.Mutex("x", WithLease(10*time.Minute)).TryLock(ctx)
		if l != nil || ok || !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			w.Fatalf("lease %v, ok %v, %v", l, ok, err)
		}
		w.pass(10 * time.Second)
		w.fail()
		w.pass(5 * time.Second)
		if rows := w.rows("x"); len(rows) != 0 {
			w.Errorf("a ghost holds the lock: %+v", rows)
		}
	})
}

// A TryLock whose client closes meanwhile leaves nothing held.
// Promise: P9
func TestTryLockLeavesNoGhostWhenTheClientCloses(t *testing.T) {
	const lease = 10 * time.Minute
	for name, try := range map[string]func(ctx context.Context, c *Client) error{
		"a mutex": func(ctx context.Context, c *Client) error {
			_, _, err := c.Mutex("{s}:1", WithLease(lease)).TryLock(ctx)
			return err
		},
		"a set": func(ctx context.Context, c *Client) error {
			_, _, err := pair(c, lease).TryLock(ctx)
			return err
		},
	} {
		for what, tc := range map[string]struct {
			fault func(w *wire)
			after time.Duration
		}{
			"while it tries":      {func(w *wire) { w.fail("deaf") }, 500 * time.Millisecond},
			"between two tries":   {func(w *wire) { w.cut(1) }, time.Millisecond},
			"while it gives back": {func(w *wire) { w.fail("deaf") }, 2500 * time.Millisecond},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				inBubble(t, func(w *wire) {
					c, closeAll := w.client(Config{})
					defer closeAll()
					if err := w.locksAll(pair(c, lease)).Release(w.Context()); err != nil {
						w.Fatal(err)
					}
					for range 3 { // the server knows the scripts
						w.pass(time.Second)
						w.release(w.lock(c, "{s}:1", lease))
					}
					w.pass(time.Second)
					tc.fault(w)
					tried := make(chan error)
					go func() { tried <- try(w.Context(), c) }()
					w.pass(tc.after)
					w.fail()
					if err := c.Close(); err != nil {
						w.Error(err)
					}
					if err := <-tried; !errors.Is(err, ErrClosed) && !errors.Is(err, ErrUnknown) {
						w.Errorf("tried: %v", err)
					}
					if n := w.held(); n != 0 {
						w.Errorf("a ghost holds %d locks", n)
					}
				})
			})
		}
	}
}

func TestWithdrawnTickIsOpenAgain(t *testing.T) {
	for _, perTick := range []int{1, 2} {
		inBubble(t, func(w *wire) {
			c, closeAll := w.client(Config{})
			defer closeAll()
			c.requests.Inspect(w.Context(), []lease.InspectRequest{{Lock: "x", Permanent: true, Schedule: "s"}})
			w.pass(time.Minute)
			r := lease.Request{Lock: "x", Permanent: true, Slots: perTick, Trigger: "schedule", Tick: &lease.Tick{
				At: w.Start.Add(30 * time.Second), Previous: w.Start, Schedule: "s", PerTick: perTick}}
			for range perTick - 1 {
				if a := c.requests.Acquire(w.Context(), r); a.Verdict != lease.Granted {
					w.Fatal(a.Verdict, a.Err)
				}
			}
			w.fail("deaf")
			a := c.requests.Acquire(w.Context(), r)
			if a.Verdict != lease.Unknown {
				w.Fatal(a.Verdict)
			}
			c.requests.Withdraw(r, a.ID)
			w.pass(3 * time.Second)
			w.fail()
			w.pass(5 * time.Second)
			if got := c.requests.Acquire(w.Context(), r); got.Verdict != lease.Granted || leaseOf(got.Run).Slot() != perTick-1 {
				w.Errorf("%d per tick: the tick is %q (%s), %v", perTick, got.Verdict, got.Outcome, got.Err)
			}
		})
	}
}

func TestReleaseWorksWithACancelledContext(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		l := w.lock(c, "x", time.Minute)
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		if err := l.Release(ctx); err != nil {
			w.Error(err)
		}
		if err := context.Cause(l.Context()); !errors.Is(err, ErrReleased) {
			w.Errorf("cause: %v", err)
		}
		if len(w.rows("x")) != 0 || l.Remaining() > 0 {
			w.Errorf("rows %+v, remaining %v", w.rows("x"), l.Remaining())
		}
	})
}

func TestReleaseIsBoundedAndRepeated(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{Timeout: time.Second})
		defer closeAll()
		w.release(w.lock(c, "warm", time.Minute))
		l := w.lock(c, "x", time.Minute)
		w.fail("mute")
		began := time.Now()
		if err := l.Release(w.Context()); !errors.Is(err, ErrUnknown) || errors.Is(err, ErrLost) {
			w.Errorf("nobody answered: %v", err)
		}
		if took := time.Since(began); took > 2*time.Second {
			w.Errorf("it took %v", took)
		}
		w.fail()
		l = w.lock(c, "y", time.Minute)
		w.fail("deaf")
		time.AfterFunc(900*time.Millisecond, func() { w.fail() })
		if err := l.Release(w.Context()); err != nil { // done at the first attempt, answered at the second
			w.Errorf("released, but: %v", err)
		}
	})
}

func TestCloseEndsLeasesAndWaits(t *testing.T) {
	inBubble(t, func(w *wire) { // which fails if a goroutine is left
		c, closeAll := w.client(Config{})
		l := w.lock(c, "x", 3*time.Second)
		w.fail("mute")
		w.pass(1500 * time.Millisecond) // a renewal is under way
		began := time.Now()
		closeAll()
		if took := time.Since(began); took > c.cfg.Timeout {
			w.Errorf("it took %v", took)
		}
		if err := context.Cause(l.Context()); !errors.Is(err, ErrClosed) {
			w.Errorf("cause: %v", err)
		}
		for _, err := range []error{
			c.requests.Acquire(w.Context(), lease.Request{Lock: "x"}).Err,
			c.requests.Inspect(w.Context(), []lease.InspectRequest{{Lock: "x"}})[0].Err,
		} {
			if !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnknown) {
				w.Errorf("after Close: %v", err)
			}
		}
		if err := c.Close(); err != nil {
			w.Error(err)
		}
	})
}

func TestCloseLetsAWithdrawalFinish(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		w.release(w.lock(c, "warm", time.Minute))
		w.fail("deaf")
		r := lease.Request{Lock: "x", Lease: time.Hour}
		a := c.requests.Acquire(w.Context(), r)
		c.requests.Withdraw(r, a.ID)
		w.fail()
		closeAll()
		if rows := w.rows("x"); len(rows) != 0 {
			w.Errorf("a ghost holds the lock: %+v", rows)
		}
	})
}

func TestCloseDoesNotWaitForAWithdrawalForEver(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		w.release(w.lock(c, "warm", time.Minute))
		w.fail("mute")
		r := lease.Request{Lock: "x", Lease: time.Hour}
		c.requests.Withdraw(r, c.requests.Acquire(w.Context(), r).ID)
		began := time.Now()
		closeAll()
		if took := time.Since(began); took > 2*c.cfg.Timeout {
			w.Errorf("it took %v", took)
		}
	})
}

// A withdrawal that has had its time is tried once more at the end, if the server is back, and not for as long again if not.
func TestCloseLetsAnOldWithdrawalTryOnce(t *testing.T) {
	for _, back := range []bool{false, true} {
		for wait := 10 * time.Second; wait < 13*time.Second; wait += 100 * time.Millisecond { // at any point of its pauses
			inBubble(t, func(w *wire) {
				c, closeAll := w.client(Config{})
				w.release(w.lock(c, "warm", time.Minute))
				w.fail("deaf")
				r := lease.Request{Lock: "x", Lease: time.Hour}
				a := c.requests.Acquire(w.Context(), r)
				w.fail("mute")
				c.requests.Withdraw(r, a.ID)
				w.pass(wait)
				if back {
					w.fail()
				}
				began := time.Now()
				closeAll()
				if took := time.Since(began); took > c.cfg.Timeout {
					w.Errorf("it took %v", took)
				}
				if rows := w.rows("x"); back && len(rows) != 0 {
					w.Errorf("a ghost holds the lock: %+v", rows)
				}
			})
		}
	}
}

// A grant that comes while the client closes is not handed out: it would not be renewed.
func TestGrantDuringCloseEnds(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{Timeout: 5 * time.Second})
		w.release(w.lock(c, "warm", time.Minute))
		w.slow(time.Second)
		granted := make(chan lease.Result)
		go func() { granted <- c.requests.Acquire(w.Context(), lease.Request{Lock: "x"}) }()
		w.pass(500 * time.Millisecond)
		if err := c.Close(); err != nil {
			w.Error(err)
		}
		a := <-granted
		if a.Verdict != lease.Granted || !errors.Is(context.Cause(a.Run.Context()), ErrClosed) {
			w.Errorf("%q, %v", a.Verdict, a.Err)
		}
		w.fail()
		w.release(leaseOf(a.Run))
		closeAll()
	})
}

func TestReplySlowerThanTheLeaseIsUnknown(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{Timeout: 5 * time.Second})
		defer closeAll()
		w.release(w.lock(c, "warm", time.Minute))
		w.slow(time.Second)
		if a := c.requests.Acquire(w.Context(), lease.Request{Lock: "x", Lease: 900 * time.Millisecond}); a.Verdict != lease.Unknown || !errors.Is(a.Err, ErrUnknown) {
			w.Errorf("%q, %v", a.Verdict, a.Err)
		}
	})
}

// A client of go-redis that asks again by itself would hide that an outcome was unknown once: its first request, or a reply to it, may be on its way still.
func TestRetriesOfTheRedisClientAreOurs(t *testing.T) {
	inBubble(t, func(w *wire) {
		r := w.redis(3)
		defer r.Close()
		c, err := New(Config{Redis: r, Clock: w.clock, Timeout: 20 * time.Second})
		if err != nil {
			w.Fatal(err)
		}
		defer c.Close()
		for _, requests := range [][]lease.Request{{{Lock: "x", Slots: 2}}, {{Lock: "y"}}, {{Lock: "{z}:1", Trigger: "test"}, {Lock: "{z}:2", Trigger: "test"}}} {
			w.release(w.lock(c, "warm", time.Minute)) // there is a connection
			w.cut(1)
			for _, a := range c.requests.AcquireAll(w.Context(), requests) {
				if a.Verdict != lease.Unknown || !errors.Is(a.Err, ErrUnknown) {
					w.Errorf("%v: %q, %v", requests, a.Verdict, a.Err)
				}
			}
		}
		w.release(w.lock(c, "warm", time.Minute))
		w.cut(2)
		l, ok, err := c.Mutex("w").TryLock(w.Context()) // which asks again
		if rows := w.rows("w"); !ok || err != nil || len(rows) != 1 || rows[0].Token != l.Token() {
			w.Fatalf("%v, %v, rows %+v", ok, err, rows)
		}
		w.cut(2)
		w.release(l)
		if n := w.Cuts(); n != 0 {
			w.Errorf("%d replies still to be cut", n)
		}
	})
}

// A release without an answer goes on in the background.
func TestReleaseGoesOnAfterAnOutage(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		l := w.lock(c, "x", time.Minute)
		w.fail("mute")
		if err := l.Release(w.Context()); !errors.Is(err, ErrUnknown) || strings.Contains(err.Error(), "\n") {
			w.Errorf("%q", err)
		}
		w.pass(2 * time.Second)
		w.fail()
		w.pass(5 * time.Second)
		if rows := w.rows("x"); len(rows) > 0 {
			w.Errorf("it is held still: %v", rows)
		}
	})
}

// The tombstone of the first release is gone by then.
func TestReleaseAgainMuchLater(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		l := w.lock(c, "x", time.Minute)
		for range 2 {
			if err := l.Release(w.Context()); err != nil {
				w.Error(err)
			}
			w.pass(time.Minute)
		}
	})
}

// A waiter's error gives the reason: others have the lock, or the server does not answer.
func TestWaitingSaysItsReason(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		wait := func() error {
			ctx, cancel := context.WithTimeout(w.Context(), 3*time.Second)
			defer cancel()
			l, err := c.Mutex("x").Lock(ctx)
			if l != nil || !errors.Is(err, context.DeadlineExceeded) {
				w.Errorf("%v, %v", l, err)
			}
			return err
		}
		held := w.lock(c, "x", time.Minute)
		if err := wait(); errors.Is(err, ErrUnknown) {
			w.Error(err)
		}
		w.fail("mute")
		if err := wait(); !errors.Is(err, ErrUnknown) || errors.Is(err, ErrRefused) {
			w.Error(err)
		}
		w.fail()
		w.pass(time.Second)
		if err := held.Release(w.Context()); err != nil {
			w.Error(err)
		}
	})
}

// A request that the server refuses for good is not made again, however much time is left.
func TestRefusalIsReportedAtOnce(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{Prefix: "p:"})
		defer closeAll()
		c.cfg.Redis.Set(w.Context(), "p:{x}", "of something else", 0)
		begun := time.Now()
		_, err := c.Mutex("x").Lock(w.Context())
		_, _, tried := c.Mutex("x").TryLock(w.Context())
		for _, err := range []error{err, tried} {
			if !errors.Is(err, ErrRefused) || !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "p:{x}") {
				w.Error(err)
			}
		}
		if took := time.Since(begun); took > time.Second {
			w.Errorf("told after %v", took)
		}
	})
}

func TestSemaphoreOfNone(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		if _, ok, err := c.Semaphore("x", 0).TryAcquire(w.Context()); ok || err == nil || !strings.Contains(err.Error(), "slots is 0") {
			w.Errorf("%v, %v", ok, err)
		}
	})
}

// Lock with a context that has ended sends nothing.
func TestLockWithAnEndedContext(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		if _, err := c.Mutex("x").Lock(ctx); !errors.Is(err, context.Canceled) {
			w.Error(err)
		}
		w.pass(time.Second)
		if sent := w.sent(); len(sent) > 0 {
			w.Errorf("sent %v", sent)
		}
	})
}

// A server that is away is waited for no longer than a round trip may take, however long the context would
// allow. A grant that it may have made is given back in the background, for which Close waits, within bounds.
func TestTryLockWithoutAServerEndsWithTheTimeout(t *testing.T) {
	const lease = 10 * time.Minute
	for name, try := range map[string]func(ctx context.Context, c *Client) (bool, error){
		"a mutex": func(ctx context.Context, c *Client) (bool, error) {
			_, ok, err := c.Mutex("{s}:1", WithLease(lease)).TryLock(ctx)
			return ok, err
		},
		"a reentrant mutex": func(ctx context.Context, c *Client) (bool, error) {
			_, _, ok, err := c.Mutex("{s}:1", WithLease(lease)).TryLockReentrant(ctx)
			return ok, err
		},
		"a set": func(ctx context.Context, c *Client) (bool, error) {
			_, ok, err := pair(c, lease).TryLock(ctx)
			return ok, err
		},
	} {
		for how, fail := range map[string]func(w *wire){
			"mute": func(w *wire) { w.fail("mute") },
			"deaf": func(w *wire) { w.fail("deaf") },
			"cut":  func(w *wire) { w.cut(1_000_000) },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				inBubble(t, func(w *wire) {
					c, closeAll := w.client(Config{})
					w.release(w.lock(c, "warm", time.Minute))
					if err := w.locksAll(pair(c, lease)).Release(w.Context()); err != nil { // the server knows its script
						w.Fatal(err)
					}
					fail(w)
					began := time.Now()
					ok, err := try(w.Context(), c)
					if took := time.Since(began); ok || !errors.Is(err, ErrUnknown) || took > c.cfg.Timeout+c.cfg.Timeout/10 {
						w.Errorf("after %v: %v, %v", took, ok, err)
					}
					w.pass(5 * time.Second)
					w.fail()
					w.cut(0)
					w.pass(3 * time.Second)
					if n := w.held(); n != 0 {
						w.Errorf("a ghost holds %d locks", n)
					}
					fail(w)
					_, _ = try(w.Context(), c)
					began = time.Now()
					closeAll()
					if took := time.Since(began); took > 2*c.cfg.Timeout+c.cfg.Timeout/10 {
						w.Errorf("closed after %v", took)
					}
				})
			})
		}
	}
}

// On a quorum it takes two round trips.
func TestTryLockWithoutAQuorumEnds(t *testing.T) {
	for how, hangs := range map[string]bool{"hung": true, "gone": false} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(w *wire) {
				c, masters, closeAll := w.quorum(3)
				defer closeAll()
				gone := &away{hangs: hangs}
				for _, m := range masters {
					m.AddHook(gone)
				}
				w.release(w.lock(c, "x", time.Minute))
				w.pass(time.Second)
				gone.Store(true)
				began := time.Now()
				_, ok, err := c.Mutex("x").TryLock(w.Context())
				if took := time.Since(began); ok || !errors.Is(err, ErrUnknown) || took > 2*c.cfg.Timeout+c.cfg.Timeout/10 {
					w.Errorf("after %v: %v, %v", took, ok, err)
				}
				gone.Store(false)
				w.pass(5 * time.Second)
				w.release(w.lock(c, "x", time.Minute))
			})
		})
	}
}
