package lease

import (
	"fmt"
	"testing"
	"time"
)

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

// fixed is a clock that stands still.
func fixed(at time.Duration) func() time.Duration { return func() time.Duration { return at } }
