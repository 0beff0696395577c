package importer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A moment is one calendar rule of a source, in terms that do not depend on the dialect.
type moment struct {
	fields [fieldCount]field
	both   bool // both day fields must match; otherwise, either
	years  yearRange
}

// A yearRange bounds the years; 0 means no bound.
type yearRange struct{ first, last int }

// parseMoment parses five fields, or six fields with the seconds first.
func (d dialect) parseMoment(words []string) (m moment, err error) {
	if len(words) == fieldCount-1 {
		words = slices.Insert(slices.Clone(words), 0, "0")
	}
	if len(words) != fieldCount {
		return m, fmt.Errorf("a schedule of %d fields", len(words))
	}
	for i, w := range words {
		if m.fields[i], err = d.parseField(i, w); err != nil {
			return m, err
		}
	}
	day, weekday := m.fields[dayOfMonth], m.fields[dayOfWeek]
	m.both = day.wild || weekday.wild || d.restricted == bothDays
	if d.restricted == noPair && !m.both {
		return m, fmt.Errorf("%s refuses a day of month beside a day of week", d.name)
	}
	return m, nil
}

// A calendarTime is one or more moments in the words of cronclave. The exceptions hold for all expressions.
type calendarTime struct {
	exprs  []string
	except []string
	dates  []string // days without a tick, which go into a calendar
	years  yearRange
}

// express returns the expression of a moment. If two restricted day fields must both match, the other days of the week become an exception: this is exact, and
// no program reads it differently.
func (m moment) express() (t calendarTime, err error) {
	f := m.fields
	day, weekday := &f[dayOfMonth], &f[dayOfWeek]
	anyDay, anyWeekday := day.any(dayOfMonth), weekday.any(dayOfWeek)
	switch {
	case m.both && anyDay:
		day.text = "*"
	case m.both && anyWeekday:
		weekday.text = "*"
	case m.both && (day.chosen || weekday.chosen):
		return t, errors.New("a random day that must fit the other day field")
	case m.both:
		rest := spans[dayOfWeek].format(spans[dayOfWeek].all()&^weekday.set, dayOfWeek)
		t.except = []string{"* * * * " + rest}
		if f[second].text != "0" {
			t.except = []string{"* * * * * " + rest}
		}
		weekday.text = "*"
		if day.star {
			day.text = spans[dayOfMonth].format(day.set, dayOfMonth)
		}
	case anyDay || anyWeekday:
		day.text, weekday.text = "*", "*"
	default: // no day field may begin with "*", because both would have to match
		if day.star {
			day.text = spans[dayOfMonth].format(day.set, dayOfMonth)
		}
		if weekday.star {
			weekday.text = spans[dayOfWeek].format(weekday.set, dayOfWeek)
		}
	}
	texts := make([]string, fieldCount)
	for i := range f {
		texts[i] = f[i].text
	}
	if texts[second] == "0" {
		texts = texts[1:]
	}
	t.exprs, t.years = []string{strings.Join(texts, " ")}, m.years
	return t, nil
}

// joinTimes joins the moments of one job. It fails if the exceptions of one would take instants away from another.
func joinTimes(times []calendarTime) (joined calendarTime, err error) {
	for i, t := range times {
		if i > 0 && (!slices.Equal(t.except, joined.except) || !slices.Equal(t.dates, joined.dates) || t.years != joined.years) {
			return joined, errors.New("several schedules, of which one combines a day of month with a day of week or a year: write them as jobs of their own")
		}
		exprs := append(joined.exprs, t.exprs...)
		joined = t
		joined.exprs = exprs
	}
	return joined, nil
}

// nicknames returns the fields for @hourly and its relatives.
func nicknames() map[string]string {
	return map[string]string{
		"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
		"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
	}
}
