package cronspec

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronclave/cronclave/internal/testtier"
)

// checkIdentities walks the ticks of a schedule, forwards and back, and checks that identities strictly increase, are never ahead of their
// instants, lead back to their ticks, and are the local time that the clock shows where it is shown.
func checkIdentities(t interface{ Fatalf(string, ...any) }, s *Schedule, from time.Time, ticks int) {
	zone, at, last := s.Zone(), s.Next(from), time.Time{}
	first := at
	for range ticks {
		if at.IsZero() {
			return
		}
		id := s.ID(at)
		if !last.IsZero() && !id.After(last) {
			t.Fatalf("%s: the tick of %v has identity %v, and the one before it %v", s.Key(), at.In(zone), id, last)
		}
		if id.After(at) {
			t.Fatalf("%s: the identity %v of the tick of %v is ahead of it", s.Key(), id, at)
		}
		if back, ok := s.Instant(id); !ok || !back.Equal(at) {
			t.Fatalf("%s: the identity %v of %v leads to %v, %t", s.Key(), id, at, back, ok)
		}
		if before, most := s.IDAt(at.Add(-time.Nanosecond)), s.IDAt(at); !before.Before(id) || most.Before(id) {
			t.Fatalf("%s: at %v the greatest identity is %v, just before it %v; the tick has %v", s.Key(), at.In(zone), most, before, id)
		}
		last, at = id, s.Next(at)
	}
	for at = s.Prev(at); at.After(first); {
		before := s.Prev(at)
		if !s.ID(before).Before(s.ID(at)) {
			t.Fatalf("%s: backwards, the identity of %v is not before that of %v", s.Key(), before, at)
		}
		at = before
	}
}

// TestIdentitiesIncrease walks many schedules through the changes of every zone.
// Promise: P1
func TestIdentitiesIncrease(t *testing.T) {
	testtier.Slow(t)
	exprs := [][]string{{"0 9 * * *"}, {"0,30 0-23 * * *"}, {"30 2 * * *", "15 1-3 * * *"}, {"*/20 59 23 * * *"}, {"0 0 * * *"}, {"5 0,1,2,3,12 28-31 * 0,6"}}
	for n, name := range BuiltIn().Names() {
		if _, changed := nineOClocks[name]; testtier.RaceEnabled && !changed && n%8 != 0 { // nothing in it is concurrent
			continue
		}
		zone, err := LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		if zone == time.UTC {
			continue
		}
		for _, texts := range exprs {
			s, err := Parse(texts, Options{Location: zone})
			if err != nil {
				t.Fatal(err)
			}
			changes := []time.Time{time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
			at := time.Date(2005, 1, 1, 0, 0, 0, 0, time.UTC)
			for end := time.Date(2032, 1, 1, 0, 0, 0, 0, time.UTC); ; {
				p := periodAt(zone, at.Unix())
				if at = time.Unix(p.end, 0); p.end > end.Unix() {
					break
				}
				if next := periodAt(zone, p.end); next.offset != p.offset && (next.offset-p.offset != 3600 && next.offset-p.offset != -3600 || at.Year()%9 == 0) {
					changes = append(changes, at)
				}
			}
			for _, change := range changes {
				checkIdentities(t, s, change.Add(-26*time.Hour), 60)
			}
		}
	}
}

// TestIdentitiesOfAnySchedule does the same for random schedules and their exceptions.
// Promise: P1
func TestIdentitiesOfAnySchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone, at := drawChange(t)
		list := rapid.SliceOfNDistinct(rapid.IntRange(0, 59), 1, 4, rapid.ID[int])
		text := func(n string) string {
			return fmt.Sprintf("%s %s %s %s", rapid.SampledFrom([]string{"0", "*/7", "1,59"}).Draw(t, "second"+n), commas(list.Draw(t, "minutes"+n)),
				rapid.SampledFrom([]string{"0-23", "2", "0,1,2,3", "23", "12,13"}).Draw(t, "hours"+n), rapid.SampledFrom([]string{"* * *", "*/2 * *", "1-28 * 0,6"}).Draw(t, "days"+n))
		}
		s, err := Parse([]string{text("1"), text("2")}, Options{Location: zone, Except: []string{text("3")}})
		if err != nil {
			t.Skip("never comes")
		}
		checkIdentities(t, s, at.Add(-time.Duration(rapid.IntRange(0, 30*3600).Draw(t, "before"))*time.Second), 40)
	})
}

func commas(numbers []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]")
}

// laws are two sets of rules for a zone: standard time all year, or an hour more, or a day more (as Apia), from one instant on.
func laws(t interface{ Fatal(...any) }, name string, before, after int, change time.Time) *time.Location {
	zone, err := time.LoadLocationFromTZData(name, tzif(before, after, change.Unix()))
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// tzif is a file of zone data with one change of the offset.
func tzif(before, after int, change int64) []byte {
	block := func(wide int) (b []byte) {
		b = append(b, "TZif2"...)
		b = append(b, make([]byte, 15)...)
		for _, n := range []int{0, 0, 0, 1, 2, 8} {
			b = append(b, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
		}
		for shift := 8 * (wide - 1); shift >= 0; shift -= 8 {
			b = append(b, byte(change>>shift))
		}
		b = append(b, 1)
		for i, offset := range []int{before, after} {
			b = append(b, byte(offset>>24), byte(offset>>16), byte(offset>>8), byte(offset), 0, byte(4*i))
		}
		return append(b, "AAA\x00BBB\x00"...)
	}
	return append(append(block(4), block(8)...), "\n\n"...)
}

// TestIdentityByOtherData is the point of identities: two sets of data that disagree, by an hour, two, or a day, on when local times are, agree on which
// times those are. Each tick of one is a tick of the other, or is skipped there and has its place between its neighbours.
// Promise: P1
func TestIdentityByOtherData(t *testing.T) {
	change := time.Date(2026, 10, 31, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct{ before, a, b int }{
		{-6 * 3600, -6 * 3600, -7 * 3600}, {3600, 0, 3600}, {-10 * 3600, -10 * 3600, 14 * 3600}, {0, 7200, -1800}, {5*3600 + 1800, 5*3600 + 1800, 6 * 3600},
	} {
		a, b := laws(t, "America/Edmonton", c.before, c.a, change), laws(t, "America/Edmonton", c.before, c.b, change)
		for _, texts := range [][]string{{"0 9 * * *"}, {"*/15 30 0,1,2,3 * * *"}, {"0,30 0-23 * * *"}, {"45 23 * * *", "0 0 * * *"}} {
			x, y := mustParseIn(t, a, texts), mustParseIn(t, b, texts)
			if x.Digest() != y.Digest() || x.Key() != y.Key() {
				t.Fatalf("%v: the data are in the key: %s, %s", texts, x.Key(), y.Key())
			}
			if x.ZoneRules() == y.ZoneRules() {
				t.Fatal("data that differ have one hash")
			}
			from, to := change.Add(-50*time.Hour), change.Add(80*time.Hour)
			for _, id := range commonOf(x, y, from, to) {
				s, _ := x.Instant(id)
				u, ok := y.Instant(id)
				if late := u.Sub(s); !ok || late.Abs() > 24*time.Hour {
					t.Fatalf("%v: the tick %v is due at %v and at %v, %t", texts, id, s, u, ok)
				}
			}
		}
	}
}

func mustParseIn(t *testing.T, zone *time.Location, texts []string) *Schedule {
	t.Helper()
	s, err := Parse(texts, Options{Location: zone})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// commonOf are the identities that both schedules have. There are some on each day that both clocks show.
func commonOf(x, y *Schedule, from, to time.Time) (common []time.Time) {
	ids := map[time.Time]bool{}
	for at := x.Next(from); at.Before(to); at = x.Next(at) {
		ids[x.ID(at)] = true
	}
	for at := y.Next(from); at.Before(to); at = y.Next(at) {
		if ids[y.ID(at)] {
			common = append(common, y.ID(at))
		}
	}
	if len(common) < 3 {
		panic(fmt.Sprint("too few common ticks: ", len(common)))
	}
	return common
}

// Expected values by hand.
func TestIdentity(t *testing.T) {
	at := func(text string) time.Time {
		instant, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return instant
	}
	for _, c := range []struct{ zone, exprs, tick, local string }{
		{"Europe/Berlin", "0 9 * * *", "2026-01-05T08:00:00Z", "2026-01-05T09:00:00Z"},
		{"Europe/Berlin", "0 9 * * *", "2026-07-05T07:00:00Z", "2026-07-05T09:00:00Z"},
		{"Europe/Berlin", "0,15,45 2 * * *", "2026-03-29T01:00:00Z", "2026-03-29T02:45:00Z"},        // 2:00 to 3:00 is skipped
		{"Europe/Berlin", "30 2 * * *; 0 3 * * *", "2026-03-29T01:00:00Z", "2026-03-29T03:00:00Z"},  // one tick for both
		{"Europe/Berlin", "30 2 * * *", "2026-10-25T00:30:00Z", "2026-10-25T02:30:00Z"},             // the first of two
		{"Pacific/Apia", "0 12 * * *", "2011-12-30T10:00:00Z", "2011-12-30T12:00:00Z"},              // the day that was skipped
		{"America/Sao_Paulo", "0 0 * * *", "2018-11-04T03:00:00Z", "2018-11-04T00:00:00Z"},          // midnight is skipped
		{"America/Havana", "0 0 * * *; 30 0 * * *", "2026-03-08T05:00:00Z", "2026-03-08T00:30:00Z"}, // both are
	} {
		zone, err := LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		s := mustParseIn(t, zone, strings.Split(c.exprs, "; "))
		if !s.Has(at(c.tick)) {
			t.Errorf("%+v: no tick", c)
		}
		if got, want := s.ID(at(c.tick)), at(c.local).Add(-aheadOfAll*time.Second); !got.Equal(want) {
			t.Errorf("%+v: identity %v, want %v", c, got, want)
		}
	}
}

// TestInstantsIdentify covers the schedules whose ticks are their own identities.
func TestInstantsIdentify(t *testing.T) {
	zone, err := LoadLocation("America/Edmonton")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		exprs   string
		zone    *time.Location
		nominal bool
		mixed   bool
	}{
		{"0 9 * * *", zone, true, false}, {"0 9 * * *; 30 10 * * 1", zone, true, false}, {"0 * * * *", zone, false, false}, {"* 9 * * *", zone, false, false},
		{"*/5 9 * * *", zone, false, false}, {"@every 90s", zone, false, false}, {"@hourly", zone, false, false}, {"@daily", zone, true, false},
		{"0 9 * * *; 0 * * * *", zone, false, true}, {"0 9 * * *; @every 90s", zone, false, true}, {"0 9 * * *", time.UTC, false, false},
	} {
		s := mustParseIn(t, c.zone, strings.Split(c.exprs, "; "))
		if s.Nominal() != c.nominal || s.Mixed() != c.mixed {
			t.Errorf("%s in %v: nominal %t, mixed %t", c.exprs, c.zone, s.Nominal(), s.Mixed())
		}
		at := s.Next(time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC))
		if back, ok := s.Instant(s.ID(at)); !ok || !back.Equal(at) || !c.nominal && !s.ID(at).Equal(at) {
			t.Errorf("%s: identity %v of %v leads to %v", c.exprs, s.ID(at), at, back)
		}
		if strings.Contains(s.Digest(), ".") != c.nominal {
			t.Errorf("%s: digest %s", c.exprs, s.Digest())
		}
	}
	if slices.Contains([]string{mustParseIn(t, zone, []string{"0 9 * * *"}).ZoneRules()}, "") {
		t.Error("a zone without a hash of its rules")
	}
}

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
