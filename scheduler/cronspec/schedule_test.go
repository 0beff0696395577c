package cronspec

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func mustParse(t testing.TB, zone string, exprs ...string) *Schedule {
	t.Helper()
	return mustParseFor(t, "", zone, exprs...)
}

func mustParseFor(t testing.TB, job, zone string, exprs ...string) *Schedule {
	t.Helper()
	location, err := LoadLocation(zone)
	if err != nil {
		t.Fatalf("load zone: %v", err)
	}
	s, err := Parse(exprs, Options{Location: location, Name: job})
	if err != nil {
		t.Fatalf("Parse(%q): %v", exprs, err)
	}
	return s
}

// ticks returns the next n ticks as RFC 3339.
func ticks(s *Schedule, after time.Time, n int) []string {
	var list []string
	for range n {
		after = s.Next(after)
		list = append(list, after.Format(time.RFC3339))
	}
	return list
}

func date(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// The days of a schedule follow Debian's day rule. The cases list days of January
// 2026, which begins on a Thursday, at midnight.
func TestDayRule(t *testing.T) {
	for _, c := range []struct {
		expr string
		want []int
	}{
		{"0 0 13 * *", []int{13}},
		{"0 0 * * 5", []int{2, 9, 16, 23, 30}},
		{"0 0 13 * 5", []int{2, 9, 13, 16, 23, 30}},                   // either
		{"0 0 */10 * *", []int{1, 11, 21, 31}},                        //
		{"0 0 */2 * 5", []int{9, 23}},                                 // both: odd days that are Fridays
		{"0 0 1/2 * 5", []int{1, 2, 3, 5, 7, 9, 11}},                  // either, no star
		{"0 0 13 * */5", nil},                                         // both: the 13th is neither Sunday nor Friday
		{"0 0 11 * */5", []int{11}},                                   // both: the 11th is a Sunday
		{"0 0 *,13 * 5", []int{2, 9, 16, 23, 30}},                     // both
		{"0 0 13,* * 5", []int{1, 2, 3, 4, 5, 6, 7}},                  // either: does not start with *
		{"0 0 * * 5-7", []int{2, 3, 4, 9, 10, 11}},                    // Friday to Sunday
		{"0 0 * * 7", []int{4, 11, 18, 25}},                           //
		{"0 0 * * FRI-SUN", []int{2, 3, 4, 9, 10, 11}},                //
		{"0 0 * * sat,Sun", []int{3, 4, 10, 11}},                      //
		{"0 0 * * 4/2", []int{1, 3, 8, 10}},                           // Thursday, Saturday
		{"0 0 * JAN-FEB thu", []int{1, 8, 15, 22, 29}},                //
		{"0 0 31 * 1-5", []int{1, 2, 5, 6, 7, 8, 9}},                  // either
		{"0 0 29-31 1 *", []int{29, 30, 31}},                          //
		{"0 0 1-7 * */6", []int{3, 4}},                                // both: Sunday 4th, Saturday 3rd
		{"0 0 */100 * *", nil},                                        // a fault, see below
		{"@weekly", []int{4, 11, 18, 25}},                             //
		{"@monthly", []int{1}},                                        //
		{"@yearly", []int{1}},                                         //
		{"@every 2d", []int{1, 3, 5, 7, 9, 11}},                       // 1 January 2026 is day 20454 from the epoch
		{"0 0 1,1,1 * *", []int{1}},                                   //
		{"0 0 5-6,10-20/5,30/1 * *", []int{5, 6, 10, 15, 20, 30, 31}}, //
	} {
		s, err := Parse([]string{c.expr}, Options{})
		if err != nil {
			if c.want != nil {
				t.Errorf("%q: %v", c.expr, err)
			}
			continue
		}
		var got []int
		for at := s.Next(date(2026, 1, 1).Add(-time.Second)); at.Before(date(2026, 2, 1)); at = s.Next(at) {
			got = append(got, at.Day())
		}
		if c.want == nil && got != nil || len(got) < len(c.want) || !slices.Equal(got[:len(c.want)], c.want) {
			t.Errorf("%q: days %v, want %v", c.expr, got, c.want)
		}
	}
}

func TestEveryCountsFromTheEpoch(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 1, time.UTC) // 1767225600, and a nanosecond
	for _, c := range []struct {
		expr string
		want []int64
	}{
		{"@every 1s", []int64{1767225601, 1767225602}},
		{"@every 90s", []int64{1767225690, 1767225780}},   // 1767225600 = 90 * 19635840
		{"@every 11s", []int64{1767225603, 1767225614}},   // 1767225600 = 11 * 160656872 + 8
		{"@every 1d12h", []int64{1767355200, 1767484800}}, // 1767225600 = 129600 * 13636
	} {
		s := mustParse(t, "Pacific/Apia", c.expr)
		next := at
		for i, want := range c.want {
			if next = s.Next(next); next.Unix() != want {
				t.Errorf("%s: tick %d is %d, want %d", c.expr, i, next.Unix(), want)
			}
		}
	}
	s := mustParse(t, "UTC", "@every 1h")
	if got := s.Next(time.Unix(-1, 0)); got.Unix() != 0 {
		t.Errorf("before the epoch: %v", got)
	}
	if got := s.Prev(time.Unix(1, 0)); got.Unix() != 0 || got.IsZero() {
		t.Errorf("the epoch itself: %v", got)
	}
	if got := s.Prev(time.Unix(0, 0)); !got.IsZero() {
		t.Errorf("before 1970 Prev says %v", got)
	}
}

// Rare days come also across the century that is no leap year.
func TestRareDays(t *testing.T) {
	for _, c := range []struct {
		expr  string
		after time.Time
		want  string
	}{
		{"0 0 29 2 *", date(2096, 3, 1), "2104-02-29T00:00:00Z"},
		// Leap days that are Sundays come every 28 years, but 40 years apart here.
		{"0 0 29 2 */7", date(2088, 3, 1), "2128-02-29T00:00:00Z"},
		{"*/5 12 29 2 */7", date(2088, 3, 1), "2128-02-29T12:00:00Z"},
	} {
		s := mustParse(t, "Europe/Berlin", c.expr)
		u := mustParse(t, "UTC", c.expr)
		if got := u.Next(c.after).Format(time.RFC3339); got != c.want {
			t.Errorf("%q after %v: %s, want %s", c.expr, c.after, got, c.want)
		}
		if got, want := s.Next(c.after), u.Next(c.after).Add(-time.Hour); got != want {
			t.Errorf("%q in Berlin after %v: %v, want %v", c.expr, c.after, got, want)
		}
		next := s.Next(c.after)
		if got := s.Prev(next); got.IsZero() || s.Next(got) != next {
			t.Errorf("%q: the one before %v is %v", c.expr, next, got)
		}
	}
}

// Beyond a zone's last single transition, time.Time.ZoneBounds ends a leap year
// a day too early.
func TestLastDayOfLeapYear(t *testing.T) {
	at := date(2040, 12, 31)
	want := "2040-12-31T08:00:00Z 2041-01-01T08:00:00Z"
	for _, expr := range []string{"0 3 * * *", "*/60 3 * * *"} {
		s := mustParse(t, "America/New_York", expr)
		if got := strings.Join(ticks(s, at, 2), " "); got != want {
			t.Errorf("%q: %s, want %s", expr, got, want)
		}
	}
}
