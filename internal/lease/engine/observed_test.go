package engine

import (
	"context"
	"testing"
	"time"
)

// A published message never shortens the longest lease of a lock. Otherwise any user that may publish could end
// the wait for a holder that the server has forgotten.
func TestOverheardLeaseIsNotShorter(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		heard, stop := hearing(w, c)
		defer stop()
		held := w.lock(c, "x", time.Minute)
		now := time.Now().Add(time.Second).UnixMicro()
		forged := grantMessage{lock: "x", owner: "o", now: now, floor: now, longest: 1}
		if err := c.cfg.Redis.Publish(w.Context(), c.cfg.Prefix+"granted", forged.message()).Err(); err != nil {
			w.Fatal(err)
		}
		heard()
		if k, _ := c.observed.Last("x"); k.Floor != now || k.Longest != time.Minute.Microseconds() {
			w.Errorf("remembered %+v", k)
		}
		w.release(held)
	})
}

// A lock is remembered for as long as a lease of it may last, however short [Config.Idle] is: by the server, and
// by the clients that remind it.
func TestShortIdleOutlastsTheLeases(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{Idle: time.Millisecond})
		defer closeAll()
		l := w.lock(c, "x", time.Minute)
		w.pass(50 * time.Second)
		if l.Context().Err() != nil || len(w.rows("x")) != 1 {
			w.Fatalf("%v, rows %+v", context.Cause(l.Context()), w.rows("x"))
		}
		if err := c.cfg.Redis.FlushAll(w.Context()).Err(); err != nil {
			w.Fatal(err)
		}
		if a := c.Acquire(w.Context(), Request{Lock: "x"}); a.Verdict != Closed {
			w.Errorf("forgotten while it is held: %q, want %q", a.Verdict, Closed)
		}
		w.pass(40 * time.Second)
		if l.Context().Err() != nil {
			w.Errorf("not put back: %v", context.Cause(l.Context()))
		}
	})
}

// Redis counts in milliseconds, and to a script no idle time means a lock that stays.
func TestIdleOfLessThanAMillisecondIsRefused(t *testing.T) {
	inBubble(t, func(w *wire) {
		r := w.redis(-1)
		defer r.Close()
		for _, idle := range []time.Duration{-1, 1, time.Millisecond - 1} {
			if c, err := New(Config{Redis: r, Idle: idle}); err == nil {
				w.Errorf("Idle of %v is accepted", idle)
				_ = c.Close()
			}
		}
	})
}
