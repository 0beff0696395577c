package cronspec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// options reads options of a few words: "except E", "date D", "from T" and "until T", separated by "; ".
func options(t testing.TB, zone, text string) Options {
	t.Helper()
	location, err := LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Location: location, Name: "job"}
	for part := range strings.SplitSeq(text, "; ") {
		kind, rest, _ := strings.Cut(part, " ")
		switch kind {
		case "except":
			o.Except = append(o.Except, rest)
		case "date":
			o.ExceptDates = append(o.ExceptDates, rest)
		case "from", "until":
			at, err := time.Parse(time.RFC3339Nano, rest)
			if err != nil {
				t.Fatal(err)
			}
			*map[string]*time.Time{"from": &o.StartsAt, "until": &o.ExpiresAt}[kind] = at
		}
	}
	return o
}

// Excepted instants are no ticks. Each case lists ticks in the zone's own time; "-"
// is the end of them.
func TestExceptions(t *testing.T) {
	for _, c := range []struct {
		name, zone, exprs, options, after, want string
	}{
		{"days in the job's zone", "Asia/Tokyo", "0 */8 * * *", "date 2026-12-25; date 2026-12-26", "2026-12-24T09:00:00+09:00",
			"2026-12-24T16:00:00+09:00 2026-12-27T00:00:00+09:00"},
		{"a date given twice, and out of order", "UTC", "@daily", "date 2027-01-01; date 2026-12-31; date 2027-01-01", "2026-12-30T00:00:00Z",
			"2027-01-02T00:00:00Z"},
		{"an instant alone", "UTC", "0 */6 * * *", "except 0 12 * * *", "2026-01-01T00:00:00Z",
			"2026-01-01T06:00:00Z 2026-01-01T18:00:00Z"},
		{"the hours of a day", "UTC", "* * * * * *", "except * * 9-17 * * *", "2026-01-01T08:59:58Z",
			"2026-01-01T08:59:59Z 2026-01-01T18:00:00Z 2026-01-01T18:00:01Z"},
		{"most of a year", "Europe/Berlin", "* * * * * *", "except * * * * 1-11 *", "2026-01-01T00:00:00+01:00",
			"2026-12-01T00:00:00+01:00"},
		{"two that leave nothing together, for a while", "UTC", "* * * * * *", "except */2 * * * 1-6 *; except 1/2 * * * 1-6 *", "2026-01-01T00:00:00Z",
			"2026-07-01T00:00:00Z"},
		{"one of two schedules", "UTC", "0 3 * * *; 0 * * * 7", "except 0 * * * 7", "2026-01-03T02:00:00Z", // the 4th is a Sunday
			"2026-01-03T03:00:00Z 2026-01-05T03:00:00Z"},
		{"an interval of another", "UTC", "@every 10s", "except @every 20s", "1970-01-01T00:00:00Z",
			"1970-01-01T00:00:10Z 1970-01-01T00:00:30Z"},
		{"an interval that is no part of a day", "UTC", "@every 7s", "except * 0-58 * * * *; except * 59 0-22 * * *", "1970-01-01T00:00:00Z",
			"1970-01-01T23:59:05Z 1970-01-01T23:59:12Z"},
		{"the first of January by name, on any day of the week", "UTC", "@daily", "except @yearly", "2025-12-31T00:00:00Z",
			"2026-01-02T00:00:00Z"},
		{"a place by the job's name", "UTC", "H * * * *; 0 0 1 1 *", "except H * * * *", "2026-01-01T00:00:00Z",
			"2027-01-01T00:00:00Z"},

		{"what was skipped stands for itself, spring", "America/New_York", "30 2 * * *; 0 5 * * *", "except 30 2 * * *", "2026-03-08T00:00:00-05:00",
			"2026-03-08T05:00:00-04:00"},
		{"what was skipped is caught, spring", "America/New_York", "* * * * *", "except 0-59 2 * * *", "2026-03-08T01:59:00-05:00",
			"2026-03-08T03:01:00-04:00"},
		{"what was skipped is not there, spring", "America/New_York", "* * * * *", "except * 2 * * *", "2026-03-08T01:59:00-05:00",
			"2026-03-08T03:00:00-04:00"},
		{"of the repeated hour the first, autumn", "America/New_York", "*/30 * * * *", "except 0,30 1 * * *", "2026-11-01T00:30:00-04:00",
			"2026-11-01T01:00:00-05:00 2026-11-01T01:30:00-05:00"},
		{"of the repeated hour both, autumn", "America/New_York", "*/30 * * * *", "except * 1 * * *", "2026-11-01T00:30:00-04:00",
			"2026-11-01T02:00:00-05:00"},
		{"a day of 25 hours", "America/New_York", "@hourly", "date 2026-11-01", "2026-10-31T23:00:00-04:00",
			"2026-11-02T00:00:00-05:00"},
		{"a day that is shown again at its end", "America/Sao_Paulo", "@hourly", "date 2018-02-17", "2018-02-16T23:00:00-02:00", // 00:00 became 23:00
			"2018-02-18T00:00:00-03:00"},
		{"the day after, from both sides", "America/Sao_Paulo", "@hourly", "date 2018-02-18", "2018-02-17T22:30:00-02:00",
			"2018-02-17T23:00:00-02:00 2018-02-17T23:00:00-03:00 2018-02-19T00:00:00-03:00"},
		{"a day that never was", "Pacific/Apia", "0 12 * * *", "date 2011-12-30", "2011-12-29T12:00:00-10:00", // its noon is caught on the 31st
			"2011-12-31T00:00:00+14:00 2011-12-31T12:00:00+14:00"},
		{"the day after one that never was", "Pacific/Apia", "0 12 * * *", "date 2011-12-31", "2011-12-29T12:00:00-10:00",
			"2012-01-01T12:00:00+14:00"},

		{"from an instant on, itself included", "UTC", "@hourly", "from 2026-01-01T03:00:00+01:00", "2025-01-01T00:00:00Z",
			"2026-01-01T02:00:00Z 2026-01-01T03:00:00Z"},
		{"from a part of a second on", "UTC", "@hourly", "from 2026-01-01T02:00:00.001Z", "2025-01-01T00:00:00Z",
			"2026-01-01T03:00:00Z"},
		{"up to an instant, not itself", "UTC", "@hourly", "until 2026-01-01T03:00:00Z", "2026-01-01T01:00:00Z",
			"2026-01-01T02:00:00Z -"},
		{"up to a part of a second", "UTC", "@hourly", "until 2026-01-01T03:00:00.5Z", "2026-01-01T02:00:00Z",
			"2026-01-01T03:00:00Z -"},
		{"from, until and except", "UTC", "@hourly", "from 2026-01-01T03:00:00Z; until 2026-01-01T06:00:00Z; except 0 4 * * *", "2025-01-01T00:00:00Z",
			"2026-01-01T03:00:00Z 2026-01-01T05:00:00Z -"},
		{"in the past", "UTC", "@hourly", "until 1990-01-01T00:00:00Z; except 0 23 * * *", "1989-12-31T21:00:00Z",
			"1989-12-31T22:00:00Z -"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(t, c.zone, c.options)
			s, err := Parse(strings.Split(c.exprs, "; "), o)
			if err != nil {
				t.Fatal(err)
			}
			at, err := time.Parse(time.RFC3339, c.after)
			if err != nil {
				t.Fatal(err)
			}
			var before time.Time
			for i, want := range strings.Fields(c.want) {
				got := "-"
				next := s.Next(at)
				if !next.IsZero() {
					got = next.In(o.Location).Format(time.RFC3339)
				}
				if got != want {
					t.Fatalf("tick %d is %s, want %s", i, got, want)
				}
				if i > 0 && !next.IsZero() && !s.Prev(next).Equal(before) {
					t.Fatalf("before tick %d comes %v, want %v", i, s.Prev(next), before)
				}
				if next.IsZero() && !s.Prev(at.Add(1000*time.Hour)).Equal(before) {
					t.Fatalf("the last tick is %v, want %v", s.Prev(at.Add(1000*time.Hour)), before)
				}
				at, before = next, next
			}
		})
	}
}

// Prev finds no tick before StartsAt, since Next has none there.
func TestNoTickBeforeTheStart(t *testing.T) {
	s, err := Parse([]string{"@hourly"}, options(t, "UTC", "from 2026-01-01T03:00:00Z"))
	if err != nil {
		t.Fatal(err)
	}
	first := time.Date(2026, 1, 1, 3, 0, 0, 0, time.UTC)
	if prev := s.Prev(first); !prev.IsZero() {
		t.Errorf("before the first tick comes %v", prev)
	}
	if prev := s.Prev(first.Add(time.Nanosecond)); prev != first {
		t.Errorf("the first tick is %v", prev)
	}
}

// Schedules with random exceptions agree with the model around a change of the
// clock, minute by minute or second by second.
func TestModelOfExceptions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone, change := drawChange(t)
		step, span, before := time.Minute, 60*30, 50*time.Hour
		seconds := rapid.Bool().Draw(t, "seconds")
		if seconds {
			step, span, before = time.Second, 3000, 4*time.Hour
		}
		from := change.Add(-time.Duration(rapid.IntRange(0, span).Draw(t, "before")) * step)
		to := change.Add(time.Duration(rapid.IntRange(0, span).Draw(t, "after")) * step)
		draw := func(label string, least int) ([]string, map[int64]bool) {
			var exprs []modelExpr
			for range rapid.IntRange(least, 2).Draw(t, label) {
				exprs = append(exprs, drawExpr(t, seconds))
			}
			texts, ticks := union(exprs, zone, from, to, before, step)
			if every := rapid.SampledFrom([]int{0, 0, 0, 1, 5, 90}).Draw(t, label+" every"); every > 0 {
				texts = append(texts, fmt.Sprintf("@every %v", time.Duration(every)*step))
				for at := from.Add(step); !at.After(to); at = at.Add(step) {
					if at.Unix()%int64(time.Duration(every)*step/time.Second) == 0 {
						ticks[at.Unix()] = true
					}
				}
			}
			return texts, ticks
		}
		texts, want := draw("expressions", 1)
		o := Options{Location: zone}
		var excepted map[int64]bool
		o.Except, excepted = draw("exceptions", 0)
		for range rapid.IntRange(0, 2).Draw(t, "dates") {
			at := from.Add(time.Duration(rapid.Int64Range(0, int64(to.Sub(from))).Draw(t, "date")))
			o.ExceptDates = append(o.ExceptDates, at.In(zone).Format(time.DateOnly))
		}
		if rapid.Bool().Draw(t, "starts") {
			o.StartsAt = from.Add(time.Duration(rapid.Int64Range(0, int64(to.Sub(from))).Draw(t, "starts at")))
		}
		if rapid.Bool().Draw(t, "expires") {
			o.ExpiresAt = to.Add(-time.Duration(rapid.Int64Range(0, int64(to.Sub(from))).Draw(t, "expires at")))
		}
		for tick := range want {
			at := time.Unix(tick, 0)
			if excepted[tick] || slices.Contains(o.ExceptDates, at.In(zone).Format(time.DateOnly)) ||
				at.Before(o.StartsAt) || !o.ExpiresAt.IsZero() && !at.Before(o.ExpiresAt) {
				delete(want, tick)
			}
		}
		agree(t, texts, o, want, from, to)
	})
}

// A schedule with other exceptions has another key; other words for the same
// exceptions do not change it.
func TestKeyDiffersByException(t *testing.T) {
	seen := map[string]string{}
	for _, same := range [][]string{
		{""},
		{"date 2026-12-25", "date 2026-12-25; date 2026-12-25"},
		{"date 2026-12-25; date 2026-12-26", "date 2026-12-26; date 2026-12-25"},
		{"except 0 3 * * *", "except 0 0 3 * * *; except 0 3 * * *"},
		{"except 0 3 * * *; except @every 14m", "except @every 840s; except 0 3 * * *"},
		{"except 0 3 * * *; date 2026-12-25"},
		{"from 2026-01-01T00:00:00Z", "from 2026-01-01T01:00:00+01:00"},
		{"until 2026-01-01T00:00:00Z"},
		{"from 2026-01-01T00:00:00Z; until 2026-01-02T00:00:00Z"},
	} {
		first := ""
		for i, text := range same {
			s, err := Parse([]string{"@every 7m"}, options(t, "Europe/Berlin", text))
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				first = s.Digest()
			}
			if before, again := seen[s.Digest()]; again && i == 0 || s.Digest() != first {
				t.Errorf("%q has the key %q; before: %q", text, s.Key(), before)
			}
			seen[s.Digest()] = text
		}
	}
	berlin, err := Parse([]string{"@every 7m"}, options(t, "Europe/Berlin", "date 2026-12-25"))
	if err != nil {
		t.Fatal(err)
	}
	tokyo, err := Parse([]string{"@every 7m"}, options(t, "Asia/Tokyo", "date 2026-12-25"))
	if err != nil {
		t.Fatal(err)
	}
	if berlin.Key() == tokyo.Key() {
		t.Error("a date is the same in Berlin and in Tokyo")
	}
}

func TestNoTickIsLeft(t *testing.T) {
	for _, c := range []struct {
		exprs, options string
		left           bool
	}{
		{"0 3 * * *", "except 0 3 * * *", false},
		{"0 3 * * *", "except * * * * * *", false},
		{"0 3 * * *", "except @every 1s", false},
		{"* * * * * *", "except */2 * * * * *; except 1/2 * * * * *", false},
		{"@every 7s", "except @every 7s", false},
		{"@every 7s", "except @every 14s", true},
		{"0 0 29 2 *", "except 0 0 */1 * 0-5", true}, // on Saturdays: 2048, 2076 ...
		{"0 0 29 2 *", "except 0 0 */1 * *", false},
		{"@daily", "from 2026-01-01T00:00:00Z; until 2026-01-01T00:00:00Z", false},
		{"@daily", "from 2026-01-02T00:00:00Z; until 2026-01-01T00:00:00Z", false},
		{"@daily", "from 2026-01-01T00:00:01Z; until 2026-01-02T00:00:00Z", false},
		{"@daily", "from 2026-01-01T00:00:00Z; until 2026-01-01T00:00:01Z", true},
		{"@daily", "from 2026-01-01T00:00:00Z; until 2026-01-03T00:00:00Z; date 2026-01-01; date 2026-01-02", false},
		{"@daily", "until 2026-01-01T00:00:00Z; except 0 0 * * *", false},
		{"@yearly", "from 9998-06-01T00:00:00Z", true},
		{"@yearly", "from 9999-06-01T00:00:00Z", false},
	} {
		_, err := Parse(strings.Split(c.exprs, "; "), options(t, "UTC", c.options))
		if c.left && err != nil || !c.left && !errors.Is(err, ErrNoTick) {
			t.Errorf("%s with %s: %v", c.exprs, c.options, err)
		}
	}
}

func TestFaultsOfExceptions(t *testing.T) {
	_, err := Parse([]string{"0 25 * * *"}, Options{Except: []string{"@daily", "* * * *"}})
	want := `expression 0, byte 2: hour "25" is out of range 0-23 (midnight is 0)` + "\n" +
		`except, expression 1, byte 7: 5 or 6 fields are needed, not 4 (minute, hour, day of month, month, day of week; seconds may come before them)`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	for _, date := range []string{"2026-02-30", "25.12.2026", ""} {
		if _, err := Parse([]string{"@daily"}, Options{ExceptDates: []string{date}}); err == nil || !strings.Contains(err.Error(), `such as "2026-12-25"`) {
			t.Errorf("%q: %v", date, err)
		}
	}
}

// counted counts how often a rule is asked.
type counted struct {
	rule
	next_, days int
}

func (c *counted) nextInstant(after, limit int64) (int64, bool) {
	c.next_++
	return c.rule.nextInstant(after, limit)
}

func (c *counted) dialOn(st stretch) dial {
	c.days++
	return c.rule.dialOn(st)
}

// Next inspects each day of a row of excepted instants once, however many there are.
func TestExceptedInstantsAreNotWalked(t *testing.T) {
	s, err := Parse([]string{"* * * * * *"}, options(t, "Europe/Berlin", "except */2 * * * 2-11 *; except 1/2 * * * 2-11 *; date 2026-12-01"))
	if err != nil {
		t.Fatal(err)
	}
	c := &counted{rule: s.rules[0]}
	s.rules[0] = c
	if next, want := s.Next(date(2026, 2, 1)), time.Date(2026, 12, 1, 23, 0, 0, 0, time.UTC); next != want {
		t.Fatalf("the next tick is %v, want %v", next, want)
	}
	if c.next_ > 310 || c.days > 310 { // 304 days, two of them cut by a change of the clock
		t.Errorf("%d searches and %d days for 304 days", c.next_, c.days)
	}
	c.next_, c.days = 0, 0
	if prev, want := s.Prev(date(2026, 11, 1)), time.Date(2026, 1, 31, 22, 59, 59, 0, time.UTC); prev != want {
		t.Fatalf("the tick before is %v, want %v", prev, want)
	}
	if c.days > 4*310 {
		t.Errorf("%d days for a tick that is 273 days ago", c.days)
	}
}

// BenchmarkExcept takes one step where no instant, a day, and most of a year is
// excepted in a row.
func BenchmarkExcept(b *testing.B) {
	for name, except := range map[string]string{
		"nothing": "except 0 0 1 1 *",
		"hours":   "except * * 1-23 * * *",
		"months":  "except * * * * 1-11 *",
		"halves":  "except */2 * * * 1-11 *; except 1/2 * * * 1-11 *",
	} {
		s, err := Parse([]string{"* * * * * *"}, options(b, "Europe/Berlin", except))
		if err != nil {
			b.Fatal(err)
		}
		at := time.Date(2026, 1, 2, 1, 0, 0, 0, time.UTC)
		b.Run("next/"+name, func(b *testing.B) {
			for b.Loop() {
				s.Next(at)
			}
		})
		b.Run("prev/"+name, func(b *testing.B) {
			for b.Loop() {
				s.Prev(at.AddDate(0, 10, 0))
			}
		})
	}
}
