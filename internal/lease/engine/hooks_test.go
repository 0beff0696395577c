package engine

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// told is the list of the hooks' calls.
type told struct {
	wire *wire

	mu    sync.Mutex
	lines []string
}

func (t *told) hooks() Hooks {
	note := func(format string, args ...any) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.lines = append(t.lines, fmt.Sprintf(format, args...))
	}
	round := func(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
	return Hooks{
		Waited:    func(lock string, wait time.Duration) { note("%s waited %v", lock, round(wait)) },
		Contended: func(lock, holder string) { note("%s contended by %s", lock, holder) },
		Renewed: func(lock string, left, length time.Duration) {
			note("%s renewed with %v of %v left", lock, round(left), length)
		},
		Held: func(lock string, held time.Duration) { note("%s held %v", lock, round(held)) },
		Lost: func(lock string, length time.Duration, cause error) {
			note("%s lost of %v: %v", lock, length, errors.Is(cause, ErrLost))
		},
	}
}

// wants fails the test unless exactly that was told since the last call, in any order.
func (t *told) wants(want ...string) {
	t.wire.Helper()
	synctest.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.Sort(t.lines)
	slices.Sort(want)
	if !slices.Equal(t.lines, want) {
		t.wire.Errorf("told: %q\nwant: %q", t.lines, want)
	}
	t.lines = nil
}

// hooked returns a client whose hooks are listened to, and another.
func hooked(w *wire) (c, other *Client, t *told, closeAll func()) {
	t = &told{wire: w}
	c, closeOne := w.client(Config{Hooks: t.hooks(), Owner: "me"})
	other, closeOther := w.client(Config{Owner: "other"})
	return c, other, t, func() { closeOne(); closeOther() }
}

func TestHooksOfALockThatNobodyElseWants(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, _, told, closeAll := hooked(w)
		defer closeAll()
		l, err := c.Mutex("x", WithLease(30*time.Second)).Lock(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		told.wants("x waited 0s")
		w.pass(15 * time.Second)
		told.wants("x renewed with 19.7s of 30s left")
		w.release(l)
		told.wants("x held 15s")
		l, _, err = c.Mutex("x").TryLock(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if err := RunOf(l).Undo(w.Context()); err != nil {
			w.Fatal(err)
		}
		told.wants("x held 0s")
	})
}

func TestHooksOfALockThatAnotherHolds(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, other, told, closeAll := hooked(w)
		defer closeAll()
		held := w.lock(other, "{s}:1", time.Minute)
		for range 2 {
			if _, ok, err := c.Mutex("{s}:1").TryLock(w.Context()); ok || err != nil {
				w.Fatal(ok, err)
			}
		}
		told.wants("{s}:1 contended by other", "{s}:1 contended by other")
		if _, ok, err := c.MultiLock("{s}:1", "{s}:2").TryLock(w.Context()); ok || err != nil {
			w.Fatal(ok, err)
		}
		told.wants("{s}:1 contended by other")
		time.AfterFunc(10*time.Second, func() { w.release(held) })
		l, err := c.Mutex("{s}:1").Lock(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		told.wants("{s}:1 contended by other", "{s}:1 waited 10s")
		w.release(l)
		told.wants("{s}:1 held 0s")
	})
}

func TestHooksOfASetThatWaits(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, other, told, closeAll := hooked(w)
		defer closeAll()
		w.lock(other, "{s}:2", 1500*time.Millisecond)
		if err := other.Close(); err != nil {
			w.Fatal(err)
		}
		leases, err := pair(c, time.Minute).Lock(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		told.wants("{s}:2 contended by other", "{s}:1 waited 1.5s", "{s}:2 waited 1.5s")
		if err := leases.Release(w.Context()); err != nil {
			w.Fatal(err)
		}
		told.wants("{s}:1 held 0s", "{s}:2 held 0s")
	})
}

func TestHooksOfALeaseThatIsLost(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, _, told, closeAll := hooked(w)
		defer closeAll()
		l := w.lock(c, "x", 3*time.Second)
		w.fail("mute")
		w.pass(10 * time.Second)
		told.wants("x lost of 3s: true", "x held 3s")
		w.fail()
		_ = l.Release(w.Context())
		told.wants()
		w.lock(c, "closed", time.Minute)
		closeAll()
		told.wants("closed held 0s")
	})
}

// A hook may call back, since nothing is locked.
func TestHooksMayUseTheClient(t *testing.T) {
	inBubble(t, func(w *wire) {
		var c *Client
		var l *Lease
		look := func() {
			c.Inspect(w.Context(), []InspectRequest{{Lock: "x"}})
			c.EstimatedTime()
			if l != nil {
				_ = l.Remaining()
			}
		}
		hooks := Hooks{
			Waited:    func(string, time.Duration) { look() },
			Contended: func(string, string) { look() },
			Renewed:   func(string, time.Duration, time.Duration) { _ = l.Remaining() },
			Held:      func(string, time.Duration) { _ = l.Remaining() },
			Lost:      func(string, time.Duration, error) { look() },
		}
		c, closeAll := w.client(Config{Hooks: hooks})
		defer closeAll()
		l = w.lock(c, "x", 3*time.Second)
		if _, ok, err := c.Mutex("x").TryLock(w.Context()); ok || err != nil {
			w.Error(ok, err)
		}
		w.pass(5 * time.Second)
		w.release(l)
		if again, err := c.Mutex("x").Lock(w.Context()); err != nil {
			w.Error(err)
		} else {
			w.release(again)
		}
	})
}
