package locking

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// enters enters a mutex and fails the test if it can't.
func (w *wire) enters(m *Mutex, ctx context.Context) (context.Context, *Lease) { //nolint:revive // as the methods of wire are
	w.Helper()
	inner, l, err := m.LockReentrant(ctx)
	if err != nil {
		w.Fatal(err)
	}
	return inner, l
}

func TestEnteredLockIsOneLease(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		m := c.Mutex("x")
		outer, l := w.enters(m, w.Context())
		ctx, cancel := context.WithTimeout(outer, time.Hour)
		defer cancel()
		inner, again := w.enters(c.Mutex("x"), ctx)
		_, third, ok, err := m.TryLockReentrant(inner)
		if err != nil || !ok || again != l || third != l {
			w.Fatalf("%p, %p and %p, %v", l, again, third, err)
		}
		for left := 3; left > 0; left-- {
			if rows := w.rows("x"); len(rows) != 1 || rows[0].Token != l.Token() || l.Context().Err() != nil || inner.Err() != nil {
				w.Fatalf("with %d holds left: rows %+v, %v", left, rows, context.Cause(l.Context()))
			}
			w.release(l)
		}
		if rows := w.rows("x"); len(rows) != 0 || !errors.Is(context.Cause(l.Context()), ErrReleased) {
			w.Errorf("rows %+v, %v", rows, context.Cause(l.Context()))
		}
		w.pass(time.Millisecond)
		if !errors.Is(context.Cause(outer), ErrReleased) || !errors.Is(context.Cause(inner), ErrReleased) {
			w.Errorf("the contexts: %v, %v", context.Cause(outer), context.Cause(inner))
		}
	})
}

func TestReleaseMoreOftenThanEntered(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		_, old := w.enters(c.Mutex("x"), w.Context())
		w.release(old)
		ctx, l := w.enters(c.Mutex("x"), w.Context())
		for range 3 {
			if err := old.Release(w.Context()); !errors.Is(err, ErrReleased) {
				w.Errorf("one too many: %v", err)
			}
			if err := runOf(old).Undo(w.Context()); !errors.Is(err, ErrReleased) {
				w.Errorf("one too many given back: %v", err)
			}
		}
		if _, same := w.enters(c.Mutex("x"), ctx); same != l || l.Token() <= old.Token() {
			w.Errorf("token %d, %d and %d", old.Token(), l.Token(), same.Token())
		}
		if err := runOf(l).Undo(w.Context()); err != nil || len(w.rows("x")) != 1 {
			w.Errorf("given back one hold of two: %v, rows %+v", err, w.rows("x"))
		}
		w.release(l)
		if len(w.rows("x")) != 0 {
			w.Errorf("rows %+v", w.rows("x"))
		}
	})
}

// Only the same lock of the same client is entered again.
func TestEnterIsOfOneLockAndOneClient(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		other, closeOther := w.client(Config{})
		defer closeOther()
		ctx, l := w.enters(c.Mutex("x"), w.Context())
		if back, no, ok, err := other.Mutex("x").TryLockReentrant(ctx); no != nil || ok || err != nil || back != ctx {
			w.Errorf("another client: %v, %v, %v", no, ok, err)
		}
		both, y := w.enters(c.Mutex("y"), ctx)
		if _, again := w.enters(c.Mutex("x"), both); again != l || y == l {
			w.Error("two locks in one context are not told apart")
		}
		if _, no, ok, _ := c.Mutex("x").TryLockReentrant(w.Context()); no != nil || ok {
			w.Error("entered with a context that carries nothing")
		}
	})
}

// TestLostLeaseIsNotEnteredAgain refuses to reenter a mutex whose lease was lost.
// Promise: P3
func TestLostLeaseIsNotEnteredAgain(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		m := c.Mutex("x", WithLease(3*time.Second))
		ctx, lost := w.enters(m, w.Context())
		w.enters(m, ctx)
		w.fail("mute")
		w.pass(4 * time.Second)
		w.fail()
		if _, l, err := m.LockReentrant(ctx); l != nil || !errors.Is(err, ErrLost) || !errors.Is(context.Cause(ctx), ErrLost) {
			w.Fatalf("entered with what was lost: %v, %v; the context: %v", l, err, context.Cause(ctx))
		}
		if _, l, ok, err := m.TryLockReentrant(ctx); l != nil || ok || !errors.Is(err, ErrLost) {
			w.Fatalf("%v, %v, %v", l, ok, err)
		}
		next, l := w.enters(m, context.WithoutCancel(ctx))
		if l == lost || l.Token() <= lost.Token() || next.Err() != nil {
			w.Fatalf("token %d after %d, %v", l.Token(), lost.Token(), next.Err())
		}
		for range 2 {
			if err := lost.Release(w.Context()); !errors.Is(err, ErrLost) {
				w.Errorf("release of what was lost: %v", err)
			}
		}
		if rows := w.rows("x"); len(rows) != 1 || rows[0].Token != l.Token() || l.Context().Err() != nil {
			w.Errorf("rows %+v, %v", rows, context.Cause(l.Context()))
		}
		w.release(l)
	})
}

// A deadline that has passed is noticed before the lease's own timer has.
func TestLeaseThatRanOutInSuspendIsNotEnteredAgain(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		m := c.Mutex("x")
		ctx, l := w.enters(m, w.Context())
		w.Suspend(time.Hour)
		if _, again, _, _ := m.TryLockReentrant(ctx); again == l {
			w.Error("entered after its deadline")
		}
	})
}

func TestContextOfAReentryEndsWithTheLease(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		type key struct{}
		m := c.Mutex("x", WithLease(3*time.Second))
		ctx, l := w.enters(m, context.WithValue(w.Context(), key{}, "value"))
		parent, cancel := context.WithCancel(context.WithoutCancel(ctx))
		inner, again := w.enters(m, parent)
		if again != l || inner.Value(key{}) != "value" {
			w.Fatalf("lease %p and %p, value %v", l, again, inner.Value(key{}))
		}
		apart, _ := w.enters(m, context.WithoutCancel(ctx))
		cancel()
		if inner.Err() == nil || ctx.Err() != nil || apart.Err() != nil {
			w.Error("it is not derived from what was passed")
		}
		w.fail("mute")
		w.pass(3 * time.Second)
		if !errors.Is(context.Cause(apart), ErrLost) || !errors.Is(context.Cause(ctx), ErrLost) {
			w.Errorf("%v, %v", context.Cause(apart), context.Cause(ctx))
		}
		w.fail()
	})
}

func TestGoroutinesShareAHold(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		m := c.Mutex("x")
		ctx, l := w.enters(m, w.Context())
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				for range 20 {
					inner, again, err := m.LockReentrant(ctx)
					if err != nil || again != l || inner.Err() != nil {
						w.Errorf("%p, want %p, %v", again, l, err)
						return
					}
					w.release(again)
				}
			})
		}
		all.Wait()
		w.release(l)
		if err := l.Release(w.Context()); !errors.Is(err, ErrReleased) {
			w.Errorf("the count is off: %v", err)
		}
	})
}

// A release of which nothing was heard may be repeated, as that of any lease.
func TestUnheardLastReleaseIsRepeated(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		ctx, l := w.enters(c.Mutex("x", WithLease(time.Hour)), w.Context())
		w.enters(c.Mutex("x"), ctx)
		w.release(l)
		w.fail("mute")
		if err := l.Release(w.Context()); !errors.Is(err, ErrUnknown) {
			w.Fatal(err)
		}
		w.fail()
		w.release(l)
		if err := l.Release(w.Context()); !errors.Is(err, ErrReleased) || len(w.rows("x")) != 0 {
			w.Errorf("%v, rows %+v", err, w.rows("x"))
		}
	})
}
