package lease

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// observation is one reply, by a clock that stands above all others.
type observation struct{ sent, served, received time.Duration }

// TestServerClockBoundsAreTrue lets two clocks drift apart by up to the part that is allowed for, and takes in replies in any order.
func TestServerClockBoundsAreTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		offset := time.Duration(rapid.Int64Range(1e18, 2e18).Draw(t, "offset")).Truncate(time.Microsecond)
		rate := rapid.Int64Range(-1e6/driftPart+1, 1e6/driftPart-1).Draw(t, "drift in millionths")
		server := func(local time.Duration) time.Duration { return local + offset + local/1e6*time.Duration(rate) }
		var c ServerClock
		var pending []observation
		local, latest := time.Duration(0), time.Duration(0)
		pause := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 10 * time.Minute}).Draw(t, "scale"))).Draw(t, "pause"))
		})
		deliver := func() {
			i := rapid.IntRange(0, len(pending)-1).Draw(t, "which")
			o := pending[i]
			pending = append(pending[:i], pending[i+1:]...)
			c.Observe(server(o.served).Microseconds(), o.sent, o.received)
			latest = max(latest, o.received)
			truth := server(latest) - latest
			const slack = time.Millisecond
			if c.low-slack > truth || c.high+slack < truth {
				t.Fatalf("offset %v outside of [%v, %v]", truth, c.low, c.high)
			}
			if c.low > c.high {
				t.Fatalf("bounds [%v, %v]", c.low, c.high)
			}
			at := latest + pause.Draw(t, "later")
			estimate, _ := c.At(at)
			if off := (server(at) - time.Duration(estimate)*time.Microsecond).Abs(); off > c.Margin(at)+slack {
				t.Fatalf("the estimate is %v off, and may be %v", off, c.Margin(at))
			}
		}
		for range rapid.IntRange(1, 20).Draw(t, "replies") {
			local += pause.Draw(t, "idle")
			o := observation{sent: local}
			local += pause.Draw(t, "there")
			o.served = local
			local += pause.Draw(t, "back")
			o.received = local
			pending = append(pending, o)
			if len(pending) > 3 {
				deliver()
			}
		}
		for len(pending) > 0 {
			deliver()
		}
	})
}

func TestServerClockNoticesAStep(t *testing.T) {
	const rtt = 2 * time.Millisecond
	for _, step := range []time.Duration{-time.Hour, -5 * rtt, 5 * rtt, time.Hour} {
		var c ServerClock
		base, local := time.Duration(1.7e18), time.Duration(0)
		for range 10 {
			c.Observe((base + local + rtt/2).Microseconds(), local, local+rtt)
			local += time.Second
		}
		c.Observe((base + step + local + rtt/2).Microseconds(), local, local+rtt)
		c.Observe((base + local - time.Second + rtt/2).Microseconds(), local-time.Second, local-time.Second+rtt) // from before the step
		micros, known := c.At(local)
		if off := time.Duration(micros)*time.Microsecond - (base + step + local); !known || off.Abs() > rtt {
			t.Errorf("step of %v: off by %v", step, off)
		}
	}
}

func TestServerClockSharpens(t *testing.T) {
	var c ServerClock
	if _, known := c.At(0); known {
		t.Error("known before the first reply")
	}
	base := time.Duration(1.7e18)
	c.Observe((base + 0).Microseconds(), 0, time.Second)                           // served at once
	c.Observe((base + 3*time.Second).Microseconds(), 2*time.Second, 3*time.Second) // served at last
	micros, _ := c.At(3 * time.Second)
	if off := time.Duration(micros)*time.Microsecond - (base + 3*time.Second); off.Abs() > 5*time.Millisecond {
		t.Errorf("off by %v though both bounds are known", off)
	}
}

func TestMicros(t *testing.T) {
	now := time.Now().Truncate(time.Microsecond).UTC()
	if got := FromMicros(ToMicros(now)); !got.Equal(now) {
		t.Errorf("%v became %v", now, got)
	}
	if !FromMicros(0).IsZero() || ToMicros(time.Time{}) != 0 {
		t.Error("the zero time is not kept")
	}
}

// No work begins after the end, and the end is waited for until all that has begun is done.
func TestWorkEndsWithItsGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		g := NewBackground(func() time.Duration { return time.Since(start) })
		if !g.Begin() || g.Over() {
			t.Fatal("it is over before its end")
		}
		ran := false
		g.Go(func() {
			<-g.Life().Done()
			<-time.After(time.Second)
			ran = true
		})
		<-time.After(time.Minute)
		g.End()
		<-time.After(time.Minute)
		g.End() // which changes nothing
		if g.endedAt != time.Minute || !g.Over() {
			t.Errorf("it has ended after %v, over: %v", g.endedAt, g.Over())
		}
		if g.Begin() || g.Go(func() { t.Error("work began after the end") }) {
			t.Error("work is accepted after the end")
		}
		done := make(chan struct{})
		go func() {
			g.Wait()
			close(done)
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Error("a call that has begun is not waited for")
		default:
		}
		g.Done()
		<-done
		if !ran {
			t.Error("the work has not run to its end")
		}
	})
}

func TestObservedStateIsTheNewest(t *testing.T) {
	const now, idle = int64(1e15), time.Minute
	old := Observed{Floor: 10, Low: 5, Longest: 30, Ledger: "7 6 done granted", Seen: 10, Permanent: true}
	tests := []struct {
		name       string
		news, want Observed
	}{
		{"newer", Observed{Floor: 11, Low: 7, Longest: 20, Seen: 11}, Observed{Floor: 11, Low: 7, Longest: 20, Seen: 11}},
		{"newer, sent before", Observed{Floor: 11, Low: 7, Longest: 20, Seen: 9}, Observed{Floor: 11, Low: 7, Longest: 20, Seen: 9}},
		{"settled since", Observed{Floor: 10, Low: 5, Longest: 30, Ledger: "8 6 done late", Seen: 11},
			Observed{Floor: 10, Low: 5, Longest: 30, Ledger: "8 6 done late", Seen: 11}},
		{"settled since, arrived before", Observed{Floor: 10, Low: 5, Longest: 30, Seen: 9}, old},
		{"out of order", Observed{Floor: 9, Low: 5, Longest: 30, Seen: 9}, old},
		{"server has forgotten all", Observed{Seen: 11}, Observed{Floor: 10, Low: 5, Longest: 30, Ledger: old.Ledger, Seen: 11}},
		{"server has forgotten the last grant", Observed{Floor: 9, Low: 5, Longest: 40, Seen: 11},
			Observed{Floor: 10, Low: 5, Longest: 40, Ledger: old.Ledger, Seen: 11}},
		{"server has forgotten, and granted since", Observed{Floor: 12, Low: 3, Longest: 20, Ledger: "4 3 part 0", Seen: 11},
			Observed{Floor: 12, Low: 5, Longest: 30, Ledger: "7 6 done granted;4 3 part 0", Seen: 11}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := NewObservedCache()
			tt.want.Permanent, tt.news.Permanent = true, true
			w.Learn("x", old, idle, now, true)
			w.Learn("x", tt.news, idle, now, true)
			if got := w.Of("x", fixed(12), idle); got != tt.want {
				t.Errorf("\n got %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// A ledger that was ahead of the clock is not held against the server that has mended it: when the time comes, that
// would close the lock, and decide ticks that are due.
func TestObservedStateForgetsAGlitchOfTheClock(t *testing.T) {
	const second = int64(1e6)
	w := NewObservedCache()
	w.Learn("x", Observed{Floor: 9, Low: 5000, Ledger: "6000 5999 done granted", Permanent: true}, time.Minute, 5000*second, true)
	w.Learn("x", Observed{Floor: 9, Low: 1000, Seen: 1, Permanent: true}, time.Minute, 1000*second, true)
	if got := w.Of("x", fixed(2), time.Minute); got.Low != 1000 || got.Ledger != "" {
		t.Errorf("%+v", got)
	}
}

func TestObservedStateOfAnIdleLockIsStale(t *testing.T) {
	const idle = 10 * time.Second
	w := NewObservedCache()
	w.Learn("plain", Observed{Floor: 9, Seen: time.Second}, idle, 1, true)
	w.Learn("permanent", Observed{Floor: 9, Seen: time.Second, Permanent: true}, idle, 1, true)
	w.Learn("unused", Observed{Floor: 9, Seen: time.Second}, idle, 1, false)
	w.Learn("plain", Observed{Floor: 9, Seen: 5 * time.Second}, idle, 1, false) // was looked at, which keeps nothing alive
	w.Learn("permanent", Observed{Floor: 9, Seen: time.Second}, idle, 1, true)  // a plain request does not change what it is
	for _, tt := range []struct {
		lock string
		at   time.Duration
		want int64
	}{
		{"plain", 6 * time.Second, 9}, {"plain", 6*time.Second + 1, 0}, {"permanent", time.Hour, 9}, {"unused", time.Second, 0}, {"unknown", 0, 0},
	} {
		if got := w.Of(tt.lock, fixed(tt.at), idle); got.Floor != tt.want {
			t.Errorf("%s after %v: floor %d, want %d", tt.lock, tt.at, got.Floor, tt.want)
		}
	}
}

// TestObservedStateIsBounded bounds the locks that a client remembers.
// Promise: P9
func TestObservedStateIsBounded(t *testing.T) {
	const idle = 10 * time.Second
	w := NewObservedCache()
	most := 0
	for i := range 100_000 {
		w.Learn(fmt.Sprint(i), Observed{Floor: 1, Seen: time.Duration(i) * time.Millisecond}, idle, 1, true)
		most = max(most, len(w.locks))
	}
	if most > 20_000 { // 5,000 of them are not stale at a time
		t.Errorf("%d locks were remembered", most)
	}
}

// An unused lock is forgotten a day after the last reply about it, also if it is permanent; a used one is not.
// Promise: P9
func TestUnusedLocksAreForgotten(t *testing.T) {
	w := NewObservedCache()
	for lock, seen := range map[string]time.Duration{"unused": time.Hour, "used": time.Hour, "observed again": time.Hour + 1} {
		w.Learn(lock, Observed{Floor: 1, Seen: seen, Permanent: true}, time.Minute, 1, true)
	}
	c := NewClient(ClientConfig{Observed: w, Clock: fixed(time.Hour + 1 + MaxLease)})
	c.ForgetLocks(func(lock string) bool { return lock != "used" })
	for lock, want := range map[string]bool{"unused": false, "used": true, "observed again": true} {
		if _, ok := w.Last(lock); ok != want {
			t.Errorf("%s is known: %v", lock, ok)
		}
	}
}

// fixed is a clock that stands still.
func fixed(at time.Duration) func() time.Duration { return func() time.Duration { return at } }
