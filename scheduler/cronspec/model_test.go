package cronspec

import (
	"fmt"
	"strings"
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
