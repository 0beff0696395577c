package engine

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// acquireAll has n callers acquire a lock each at the same time, and returns how many got theirs.
func acquireAll(w *wire, c *Client, name string, n int) (granted int) {
	var callers sync.WaitGroup
	verdicts := make([]Verdict, n)
	for i := range n {
		callers.Go(func() {
			verdicts[i] = c.Acquire(w.Context(), Request{Lock: fmt.Sprint(name, i), Lease: time.Minute}).Verdict
		})
	}
	callers.Wait()
	for _, v := range verdicts {
		if v == Granted {
			granted++
		}
	}
	return granted
}

// Callers that come while a round trip is under way share the next one.
func TestCallersTravelTogether(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		w.release(w.lock(c, "warm", time.Minute))
		w.slow(100 * time.Millisecond)
		w.sent()
		start := time.Now()
		if n := acquireAll(w, c, "x", 64); n != 64 {
			w.Errorf("%d granted", n)
		}
		sent, total := w.sent(), 0
		for _, n := range sent {
			total += n
		}
		if len(sent) > 10 { // with those that set up connections
			w.Errorf("pipelines of %v calls", sent)
		}
		if took := time.Since(start); total < 64 || took > 2*time.Second {
			w.Errorf("%d calls took %v", total, took)
		}
		w.fail()
	})
}

// A round trip that hangs holds up those that come after it for a part of its time-out.
func TestHungRoundTripHoldsUpNobodyForLong(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{Timeout: 4 * time.Second})
		defer closeAll()
		w.release(w.lock(c, "warm", time.Minute))
		w.fail("deaf")
		var first sync.WaitGroup
		first.Go(func() { c.Acquire(w.Context(), Request{Lock: "first", Lease: time.Minute}) })
		synctest.Wait()
		w.fail()
		start := time.Now()
		if n := acquireAll(w, c, "x", 10); n != 10 {
			w.Errorf("%d granted", n)
		}
		if took := time.Since(start); took > 1100*time.Millisecond {
			w.Errorf("took %v", took)
		}
		first.Wait()
		start = time.Now()
		if n := acquireAll(w, c, "y", 10); n != 10 || time.Since(start) > 0 { // no round trip is under way any more
			w.Errorf("%d granted after %v", n, time.Since(start))
		}
	})
}
