package engine

import (
	"context"
	"fmt"
	"testing"
	"time"
)

func TestWitnessKeepsTheNewest(t *testing.T) {
	const now, idle = int64(1e15), time.Minute
	old := observation{floor: 10, low: 5, longest: 30, ledger: "7 6 done granted", seen: 10, permanent: true}
	tests := []struct {
		name       string
		news, want observation
	}{
		{"newer", observation{floor: 11, low: 7, longest: 20, seen: 11}, observation{floor: 11, low: 7, longest: 20, seen: 11}},
		{"newer, sent before", observation{floor: 11, low: 7, longest: 20, seen: 9}, observation{floor: 11, low: 7, longest: 20, seen: 9}},
		{"settled since", observation{floor: 10, low: 5, longest: 30, ledger: "8 6 done late", seen: 11},
			observation{floor: 10, low: 5, longest: 30, ledger: "8 6 done late", seen: 11}},
		{"settled since, arrived before", observation{floor: 10, low: 5, longest: 30, seen: 9}, old},
		{"out of order", observation{floor: 9, low: 5, longest: 30, seen: 9}, old},
		{"server has forgotten all", observation{seen: 11}, observation{floor: 10, low: 5, longest: 30, ledger: old.ledger, seen: 11}},
		{"server has forgotten the last grant", observation{floor: 9, low: 5, longest: 40, seen: 11},
			observation{floor: 10, low: 5, longest: 40, ledger: old.ledger, seen: 11}},
		{"server has forgotten, and granted since", observation{floor: 12, low: 3, longest: 20, ledger: "4 3 part 0", seen: 11},
			observation{floor: 12, low: 5, longest: 30, ledger: "7 6 done granted;4 3 part 0", seen: 11}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := observed{locks: map[string]observation{}}
			tt.want.permanent, tt.news.permanent = true, true
			w.learn("x", old, idle, now, true)
			w.learn("x", tt.news, idle, now, true)
			if got := w.of("x", fixed(12), idle); got != tt.want {
				t.Errorf("\n got %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

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
		forged := granted{lock: "x", owner: "o", now: now, floor: now, longest: 1}
		if err := c.cfg.Redis.Publish(w.Context(), c.one().channel(), forged.append(nil)).Err(); err != nil {
			w.Fatal(err)
		}
		heard()
		if k, _ := c.one().seen.remembers("x"); k.floor != now || k.longest != time.Minute.Microseconds() {
			w.Errorf("remembered %+v", k)
		}
		w.release(held)
	})
}

// A ledger that was ahead of the clock is not held against the server that has mended it: when the time comes, that
// would close the lock, and decide ticks that are due.
func TestWitnessForgetsAGlitchOfTheClock(t *testing.T) {
	const second = int64(1e6)
	w := observed{locks: map[string]observation{}}
	w.learn("x", observation{floor: 9, low: 5000, ledger: "6000 5999 done granted", permanent: true}, time.Minute, 5000*second, true)
	w.learn("x", observation{floor: 9, low: 1000, seen: 1, permanent: true}, time.Minute, 1000*second, true)
	if got := w.of("x", fixed(2), time.Minute); got.low != 1000 || got.ledger != "" {
		t.Errorf("%+v", got)
	}
}

func TestWitnessOfAnIdleLockIsStale(t *testing.T) {
	const idle = 10 * time.Second
	w := observed{locks: map[string]observation{}}
	w.learn("plain", observation{floor: 9, seen: time.Second}, idle, 1, true)
	w.learn("permanent", observation{floor: 9, seen: time.Second, permanent: true}, idle, 1, true)
	w.learn("unused", observation{floor: 9, seen: time.Second}, idle, 1, false)
	w.learn("plain", observation{floor: 9, seen: 5 * time.Second}, idle, 1, false) // was looked at, which keeps nothing alive
	w.learn("permanent", observation{floor: 9, seen: time.Second}, idle, 1, true)  // a plain request does not change what it is
	for _, tt := range []struct {
		lock string
		at   time.Duration
		want int64
	}{
		{"plain", 6 * time.Second, 9}, {"plain", 6*time.Second + 1, 0}, {"permanent", time.Hour, 9}, {"unused", time.Second, 0}, {"unknown", 0, 0},
	} {
		if got := w.of(tt.lock, fixed(tt.at), idle); got.floor != tt.want {
			t.Errorf("%s after %v: floor %d, want %d", tt.lock, tt.at, got.floor, tt.want)
		}
	}
}

// TestWitnessIsBounded bounds the locks that a client remembers.
// Promise: P9
func TestWitnessIsBounded(t *testing.T) {
	const idle = 10 * time.Second
	w := observed{locks: map[string]observation{}}
	most := 0
	for i := range 100_000 {
		w.learn(fmt.Sprint(i), observation{floor: 1, seen: time.Duration(i) * time.Millisecond}, idle, 1, true)
		most = max(most, len(w.locks))
	}
	if most > 20_000 { // 5,000 of them are not stale at a time
		t.Errorf("%d locks were remembered", most)
	}
}

// fixed is a clock that stands still.
func fixed(at time.Duration) func() time.Duration { return func() time.Duration { return at } }

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
