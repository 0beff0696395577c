package cronspec

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// The place of H is fixed by the job's name and never changes: replicas of
// different versions run together. The places were computed apart from this
// package, by
//
//	printf 'H\0minute\0backup' | sha256sum | cut -c1-16
//
// and arithmetic on the result.
func TestHIsPlacedByTheName(t *testing.T) {
	for _, c := range []struct{ job, expr, same string }{
		{"backup", "H * * * *", "51 * * * *"},
		{"report", "H * * * *", "19 * * * *"},
		{"backup", "H H H H H H", "4 51 11 3 5 1"},
		{"report", "H H H H H H", "41 19 3 14 12 0"},
		{"backup", "H/15 * * * *", "6,21,36,51 * * * *"},
		{"backup", "H(0-29) * * * *", "21 * * * *"},
		{"backup", "H(0-29)/10 * * * *", "1,11,21 * * * *"},
		{"backup", "H(30-59)/10 * * * *", "31,41,51 * * * *"},
		{"backup", "H(0-29),H(30-59) * * * *", "21,51 * * * *"},
		{"backup", "H,5 H(22-23) * * *", "5,51 23 * * *"},
		{"backup", "H/1 * * * *", "0-59 * * * *"},
		{"backup", "0 0 H/10 * *", "0 0 9,19 * *"},
		{"report", "0 0 H/10 * *", "0 0 8,18,28 * *"},
		{"backup", "0 0 * H/3 *", "0 0 * 2,5,8,11 *"},
		{"backup", "0 0 * * H(MON-FRI)", "0 0 * * WED"},
		{"report", "0 0 * * H(1-7)", "0 0 * * 1"},
	} {
		h, plain := mustParseFor(t, c.job, "UTC", c.expr), mustParse(t, "UTC", c.same)
		if h.Key() != plain.Key() {
			t.Errorf("%s %q: %s, want %s", c.job, c.expr, h.Key(), plain.Key())
		}
	}
}

// H spreads six hundred jobs with numbered names over all minutes.
func TestHSpreads(t *testing.T) {
	perMinute := map[int]int{}
	for i := range 600 {
		s := mustParseFor(t, fmt.Sprintf("job-%d", i), "UTC", "H * * * *")
		perMinute[s.Next(date(2026, 1, 1)).Minute()]++
	}
	for minute, n := range perMinute {
		if n > 25 { // 10 on average
			t.Errorf("%d of 600 jobs in minute %d", n, minute)
		}
	}
	if len(perMinute) < 55 {
		t.Errorf("only %d minutes are used", len(perMinute))
	}
}

func TestHLeavesTheDaysAfterThe28th(t *testing.T) {
	for i := range 500 {
		s := mustParseFor(t, strings.Repeat("x", i), "UTC", "0 0 H * *")
		if day := s.Next(date(2026, 1, 1)).Day(); day > 28 {
			t.Fatalf("H is day %d", day)
		}
	}
}

// The jitter of a tick is fixed. The values were computed apart, as above, from
// 'jitter\0backup\01767225600' and so on: milliseconds = floor(limit in ns * h /
// 2^64) / 10^6.
func TestJitterIsFixed(t *testing.T) {
	tick := date(2026, 1, 1)
	for i, want := range []time.Duration{10_016 * time.Millisecond, 10_807 * time.Millisecond, 12_051 * time.Millisecond} {
		at := tick.Add(time.Duration(i) * time.Minute)
		if got := Jitter("backup", at, at.Add(time.Hour), 30*time.Second); got != want {
			t.Errorf("tick %d: %v, want %v", i, got, want)
		}
	}
	// Where the next tick is closer than max it is the limit.
	if got := Jitter("backup", tick, tick.Add(time.Minute), time.Hour); got != 20032*time.Millisecond {
		t.Errorf("limited by the next tick: %v", got)
	}
	if a, b := Jitter("backup", tick.In(time.FixedZone("", 3600)), time.Time{}, time.Hour), Jitter("backup", tick, time.Time{}, time.Hour); a != b {
		t.Errorf("depends on the zone: %v, %v", a, b)
	}
}

func TestJitterStaysInBounds(t *testing.T) {
	tick := date(2026, 1, 1)
	var sum time.Duration
	const n = 2000
	for i := range n {
		at := tick.Add(time.Duration(i) * time.Second)
		d := Jitter("job", at, at.Add(time.Second), time.Minute)
		if d < 0 || d >= time.Second || d%time.Millisecond != 0 {
			t.Fatalf("%v with a second to the next tick", d)
		}
		sum += d
	}
	if mean := sum / n; mean < 450*time.Millisecond || mean > 550*time.Millisecond {
		t.Errorf("the mean of delays in [0, 1s) is %v", mean)
	}
	for _, d := range []time.Duration{
		Jitter("job", tick, time.Time{}, 0), Jitter("job", tick, time.Time{}, -time.Second),
		Jitter("job", tick, tick, time.Minute), Jitter("job", tick, time.Time{}, time.Millisecond),
	} {
		if d != 0 {
			t.Errorf("%v, want no delay", d)
		}
	}
	if d := Jitter("job", tick, time.Time{}, math.MaxInt64); d <= 0 {
		t.Errorf("the greatest max gives %v", d)
	}
}
