package engine

import (
	"context"
	"errors"
	"testing"
	"time"
)

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
