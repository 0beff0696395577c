package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Work that needs two leases may rely on the shorter of both, whichever that is at the time.
// Promise: P3
func TestTogetherIsTheShorterOfBoth(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		long := w.lock(c, "long", time.Minute)
		w.pass(time.Second)
		short := w.lock(c, "short", 9*time.Second)
		both := LeaseSetOf(long, short)
		if both.Length() != 9*time.Second || both.Deadline() != short.Deadline() || both.Remaining() != short.Remaining() {
			w.Errorf("length %v, deadline %v, remaining %v", both.Length(), both.Deadline(), both.Remaining())
		}
		var mu sync.Mutex
		var all []time.Duration
		stop := both.OnExtend(func(deadline time.Duration) { mu.Lock(); defer mu.Unlock(); all = append(all, deadline) })
		heard := func() []time.Duration { mu.Lock(); defer mu.Unlock(); return slices.Clone(all) }
		w.pass(7 * time.Second)
		told := heard()
		if len(told) != 2 || told[0] >= told[1] || told[1] != short.Deadline() {
			w.Errorf("told %v, want both renewals of the short one, up to %v", told, short.Deadline())
		}
		w.pass(30 * time.Second) // the long one is renewed, too, which moves nothing
		told = heard()
		for i := 1; i < len(told); i++ {
			if told[i] <= told[i-1] {
				w.Errorf("told %v after %v", told[i], told[i-1])
			}
		}
		stop()
		n := len(heard())
		w.fail("mute")
		w.pass(8 * time.Second)
		select {
		case <-both.Endangered():
		default:
			w.Error("nobody was warned")
		}
		w.pass(time.Second)
		synctest.Wait()
		if cause := both.Context().Err(); cause == nil || long.Context().Err() != nil || len(heard()) != n {
			w.Errorf("the end of one is not that of both: %v", cause)
		}
		w.fail()
	})
}

func TestTogetherEndsWithARelease(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		a, b := w.lock(c, "a", time.Minute), w.lock(c, "b", time.Minute)
		both := LeaseSetOf(a, b)
		w.release(b)
		<-both.Context().Done()
		if cause := context.Cause(both.Context()); !errors.Is(cause, ErrReleased) || a.Context().Err() != nil {
			w.Errorf("ended with %v", cause)
		}
		w.release(a)
	})
}

// A lease that was lost before it was confirmed is waited for again.
func TestAcquireConfirmedHasTheWholeLength(t *testing.T) {
	inBubble(t, func(w *wire) {
		holder, closeHolder := w.client(Config{})
		defer closeHolder()
		held := w.lock(holder, "x", time.Minute)
		c, closeAll := w.client(Config{})
		defer closeAll()
		got := make(chan *Lease)
		go func() {
			l, err := c.Semaphore("x", 1, WithLease(time.Minute)).AcquireConfirmed(w.Context())
			if err != nil {
				w.Error(err)
			}
			got <- l
		}()
		w.pass(time.Second)
		w.release(held)
		l := <-got
		if left := l.Remaining(); left < 50*time.Second {
			w.Errorf("it has %v", left)
		}
		w.release(l)
	})
}

// A lease that is lost before it was confirmed is in no other waiter's way, though the server got renewals whose
// replies were lost.
// Promise: P9
func TestAcquireConfirmedDoesNotWaitForItself(t *testing.T) {
	inBubble(t, func(w *wire) {
		holder, closeHolder := w.beside().client(Config{})
		defer closeHolder()
		held := w.lock(holder, "x", time.Minute)
		var waited []time.Duration
		c, closeAll := w.client(Config{Hooks: Hooks{Waited: func(string, time.Duration) {
			if waited = append(waited, w.clock()); len(waited) == 1 {
				w.fail("deaf")
			}
		}}})
		defer closeAll()
		got := make(chan *Lease)
		go func() {
			l, err := c.Semaphore("x", 1, WithLease(time.Minute)).AcquireConfirmed(w.Context())
			if err != nil {
				w.Error(err)
			}
			got <- l
		}()
		w.pass(25 * time.Second) // the server learns to renew
		w.release(held)
		w.pass(3 * time.Second)
		w.fail()
		l := <-got
		if len(waited) != 2 || waited[1]-waited[0] > 20*time.Second {
			w.Errorf("it was granted after %v", waited)
		}
		w.release(l)
	})
}
