package cronspec

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// modelField is a generated field: its text, and what the text means by a
// reading of its own.
type modelField struct {
	text   string
	values map[int]bool
}

func (f modelField) star() bool { return strings.HasPrefix(f.text, "*") }

// modelExpr is a generated expression of six fields, and an evaluator of it
// that tries one instant after the other.
type modelExpr struct {
	second, minute, hour, day, month, weekday modelField
}

func (m modelExpr) text() string {
	return strings.Join([]string{m.second.text, m.minute.text, m.hour.text, m.day.text, m.month.text, m.weekday.text}, " ")
}

// shows returns whether a time of the wall clock matches.
func (m modelExpr) shows(wall time.Time) bool {
	day, weekday := m.day.values[wall.Day()], m.weekday.values[int(wall.Weekday())]
	dayOK := day || weekday
	if m.day.star() || m.weekday.star() {
		dayOK = day && weekday
	}
	return dayOK && m.month.values[int(wall.Month())] && m.hour.values[wall.Hour()] &&
		m.minute.values[wall.Minute()] && m.second.values[wall.Second()]
}

// ticks returns the ticks in (from, to] by walking the clock in steps from
// before `from`, long enough for every time that is shown twice to be known.
func (m modelExpr) ticks(zone *time.Location, from, to time.Time, before, step time.Duration) map[int64]bool {
	found := map[int64]bool{}
	var shown time.Time // the latest time of the wall clock so far
	for at := from.Add(-before); !at.After(to); at = at.Add(step) {
		wall := onUTC(at.In(zone))
		if shown.IsZero() {
			shown = wall.Add(-step)
		}
		tick := false
		if m.minute.star() || m.hour.star() {
			tick = m.shows(wall)
		} else {
			for ; shown.Before(wall); shown = shown.Add(step) {
				tick = tick || m.shows(shown.Add(step))
			}
		}
		if tick && at.After(from) {
			found[at.Unix()] = true
		}
	}
	return found
}

// onUTC returns the instant at which UTC shows the same time as t.
func onUTC(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// drawField draws a field with values from low to high; the greatest number
// that may be written is top (7 for a day of week).
func drawField(t *rapid.T, label string, low, high, top int) modelField {
	f := modelField{values: map[int]bool{}}
	var items []string
	for range rapid.IntRange(1, 3).Draw(t, label+" items") {
		text, from, to, step := drawItem(t, label, low, high, top)
		items = append(items, text)
		for v := from; v <= to; v += step {
			if top == 7 {
				f.values[v%7] = true
			} else {
				f.values[v] = true
			}
		}
	}
	f.text = strings.Join(items, ",")
	return f
}

func drawItem(t *rapid.T, label string, low, high, top int) (text string, from, to, step int) {
	a := rapid.IntRange(low, top).Draw(t, label+" from")
	b := rapid.IntRange(a, top).Draw(t, label+" to")
	switch rapid.IntRange(0, 5).Draw(t, label+" form") {
	case 0:
		return "*", low, high, 1
	case 1:
		step = rapid.IntRange(1, high-low+1).Draw(t, label+" step")
		return fmt.Sprintf("*/%d", step), low, high, step
	case 2:
		return fmt.Sprintf("%d-%d", a, b), a, b, 1
	case 3:
		step = rapid.IntRange(1, b-a+1).Draw(t, label+" step")
		return fmt.Sprintf("%d-%d/%d", a, b, step), a, b, step
	case 4:
		b = max(a, high)
		step = rapid.IntRange(1, b-a+1).Draw(t, label+" step")
		return fmt.Sprintf("%d/%d", a, step), a, b, step
	default:
		return fmt.Sprint(a), a, a, 1
	}
}

// drawExpr draws an expression; without seconds its first field is 0. Days and
// months are mostly free, so that something happens in a short time.
func drawExpr(t *rapid.T, seconds bool) modelExpr {
	anyOf := func(label string, low, high, top int) modelField {
		if rapid.IntRange(0, 3).Draw(t, label+" free") > 0 {
			f := modelField{text: "*", values: map[int]bool{}}
			for v := low; v <= high; v++ {
				f.values[v] = true
			}
			return f
		}
		return drawField(t, label, low, high, top)
	}
	m := modelExpr{
		second:  modelField{text: "0", values: map[int]bool{0: true}},
		minute:  drawField(t, "minute", 0, 59, 59),
		hour:    drawField(t, "hour", 0, 23, 23),
		day:     anyOf("day", 1, 31, 31),
		month:   anyOf("month", 1, 12, 12),
		weekday: anyOf("weekday", 0, 6, 7),
	}
	if seconds {
		m.second = drawField(t, "second", 0, 59, 59)
	}
	return m
}

// drawChange draws a zone and an instant at which its clock changes, or any
// instant if it has no change.
func drawChange(t *rapid.T) (*time.Location, time.Time) {
	name := rapid.SampledFrom([]string{
		"UTC", "America/New_York", "Europe/Berlin", "Europe/Dublin", "Australia/Lord_Howe",
		"Pacific/Apia", "Pacific/Kwajalein", "Pacific/Chatham", "America/Sao_Paulo", "America/Caracas",
		"America/Nuuk", "Africa/Casablanca", "Antarctica/Troll", "Antarctica/Casey", "Asia/Gaza",
		"Asia/Kathmandu", "Asia/Pyongyang",
	}).Draw(t, "zone")
	zone, err := LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	const from, to = 157_766_400, 2_366_841_600 // 1975, 2045
	at := time.Unix(rapid.Int64Range(from, to).Draw(t, "instant"), 0).In(zone)
	if _, end := at.ZoneBounds(); end.After(at) {
		at = end
	}
	return zone, at.UTC().Truncate(time.Minute)
}

// union returns the texts of some expressions, and their ticks in (from, to] by the
// model.
func union(exprs []modelExpr, zone *time.Location, from, to time.Time, before, step time.Duration) (texts []string, ticks map[int64]bool) {
	ticks = map[int64]bool{}
	for _, m := range exprs {
		texts = append(texts, m.text())
		for tick := range m.ticks(zone, from, to, before, step) {
			ticks[tick] = true
		}
	}
	return texts, ticks
}

// agree checks a schedule against the ticks that it should have in (from, to].
func agree(t *rapid.T, texts []string, o Options, want map[int64]bool, from, to time.Time) {
	s, err := Parse(texts, o)
	if err != nil {
		t.Skip("never comes: ", err) // 30 February and the like
	}
	zone := o.Location
	var got []int64
	for at := s.Next(from); !at.IsZero() && !at.After(to); at = s.Next(at) {
		got = append(got, at.Unix())
		if !want[at.Unix()] {
			t.Fatalf("%q with %+v: %v is no tick by the model", texts, o, at.In(zone))
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%q with %+v after %v: %d ticks, %d by the model", texts, o, from.In(zone), len(got), len(want))
	}
	end := to.Add(time.Second)
	for _, tick := range slices.Backward(got) {
		if len(got) > 50 && tick%7 != 0 { // many: only some of them
			end = time.Unix(tick, 0)
			continue
		}
		if end = s.Prev(end); end.Unix() != tick {
			t.Fatalf("%q with %+v: Prev is %v, want %v", texts, o, end.In(zone), time.Unix(tick, 0).In(zone))
		}
	}
}

// Schedules agree with the model minute by minute through the days around a change
// of the clock.
func TestModelByMinutes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone, change := drawChange(t)
		exprs := []modelExpr{drawExpr(t, false)}
		if rapid.Bool().Draw(t, "two") {
			exprs = append(exprs, drawExpr(t, false))
		}
		from := change.Add(-time.Duration(rapid.IntRange(0, 60*30).Draw(t, "before")) * time.Minute)
		to := change.Add(time.Duration(rapid.IntRange(0, 60*30).Draw(t, "after")) * time.Minute)
		texts, want := union(exprs, zone, from, to, 50*time.Hour, time.Minute)
		agree(t, texts, Options{Location: zone}, want, from, to)
	})
}

// Schedules agree with the model second by second through the hours around a change
// of the clock.
func TestModelBySeconds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone, change := drawChange(t)
		exprs := []modelExpr{drawExpr(t, true)}
		from := change.Add(-time.Duration(rapid.IntRange(0, 2000).Draw(t, "before")) * time.Second)
		to := change.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "after")) * time.Second)
		texts, want := union(exprs, zone, from, to, 4*time.Hour, time.Second)
		agree(t, texts, Options{Location: zone}, want, from, to)
	})
}

// Next grows strictly, in whole seconds; Prev is its inverse.
func TestNextAndPrevAreConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone, at := drawChange(t)
		m := drawExpr(t, rapid.Bool().Draw(t, "seconds"))
		s, err := Parse([]string{m.text(), "@every 977h"}, Options{Location: zone})
		if err != nil {
			t.Skip("never comes: ", err)
		}
		at = at.Add(time.Duration(rapid.Int64Range(-1e14, 1e14).Draw(t, "off")))
		for range 5 {
			next := s.Next(at)
			if !next.After(at) || next.Nanosecond() != 0 || next.Location() != time.UTC {
				t.Fatalf("Next(%v) = %v", at, next)
			}
			if again := s.Next(next.Add(-time.Nanosecond)); again != next {
				t.Fatalf("just before the tick %v, Next is %v", next, again)
			}
			if prev := s.Prev(next.Add(time.Nanosecond)); prev != next {
				t.Fatalf("just after the tick %v, Prev is %v", next, prev)
			}
			prev := s.Prev(next)
			if prev.After(at) || s.Next(prev) != next {
				t.Fatalf("Prev(%v) = %v, which is followed by %v; asked from %v", next, prev, s.Next(prev), at)
			}
			at = next
		}
	})
}

// The order of a list and repeated expressions do not change the key.
func TestKeyOfList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone, at := drawChange(t)
		texts := []string{drawExpr(t, false).text(), drawExpr(t, true).text(), "@every 90s", "@daily"}
		s, err := Parse(texts, Options{Location: zone})
		if err != nil {
			t.Skip("never comes: ", err)
		}
		shuffled := append(rapid.Permutation(texts).Draw(t, "order"), texts[0])
		r, err := Parse(shuffled, Options{Location: zone})
		if err != nil {
			t.Fatal(err)
		}
		if r.Key() != s.Key() || r.Digest() != s.Digest() {
			t.Fatalf("keys differ:\n%s\n%s", r.Key(), s.Key())
		}
		if r.Next(at) != s.Next(at) {
			t.Fatalf("Next differs: %v, %v", r.Next(at), s.Next(at))
		}
	})
}

// At the ends of time there is no panic, no endless loop, and no tick out of order.
func TestExtremes(t *testing.T) {
	for _, zone := range []string{"UTC", "America/New_York", "Pacific/Apia"} {
		for _, expr := range []string{"* * * * * *", "0 3 * * *", "*/5 3 29 2 */7", "59 59 23 31 12 *", "@every 1s", "@every 100000d"} {
			atTheEnds(t, mustParse(t, zone, expr), zone+" "+expr)
			o := options(t, zone, "except * * 1,5-9 * * *; except @every 7d; date 0001-01-01; date 1970-01-01; date 9999-12-30")
			s, err := Parse([]string{expr}, o)
			if err != nil {
				t.Fatal(err)
			}
			atTheEnds(t, s, zone+" "+expr+" with exceptions")
		}
	}
}

func atTheEnds(t *testing.T, s *Schedule, name string) {
	for _, at := range []time.Time{{}, time.Unix(-1<<62, 0), time.Unix(1<<62, 0), time.Unix(lastInstant, 0),
		time.Unix(lastInstant-1, 0), time.Unix(lastInstant+1, 1), time.Unix(firstInstant-1, 0), time.Unix(0, 0), time.Unix(-1, 5)} {
		if next := s.Next(at); !next.IsZero() && (!next.After(at) || next.Unix() > lastInstant) {
			t.Errorf("%s: Next(%v) = %v", name, at, next)
		}
		if prev := s.Prev(at); !prev.IsZero() && (!prev.Before(at) || prev.Unix() < 0) {
			t.Errorf("%s: Prev(%v) = %v", name, at, prev)
		}
	}
}
