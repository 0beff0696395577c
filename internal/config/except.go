package config

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
)

// calendars maps the name of a calendar to its days, each as "2026-12-25".
type calendars map[string][]string

func calendarKeys() schema.Section[[]string] {
	return schema.Section[[]string]{Keys: []schema.Key[[]string]{
		schema.Field("dates", "list of dates", func(to *[]string) *[]string { return to }, func(r *schema.Reader, v document.Value) ([]string, bool) {
			return schema.List(r, v, `a list of days such as ["2026-12-25"]`, func(item document.Value) (string, bool) { return readDay(r, item) })
		}, "The days of the calendar. A day counts by the time zone of the job that excepts it. Required.").Allow("at least one, such as `\"2026-12-25\"`"),
	}}
}

// readCalendars reads [calendars], a table of named lists of days.
func readCalendars(r *schema.Reader, v document.Value, to calendars) {
	eachNamed(r, v, "calendar", func(calendar document.Value) {
		var dates []string
		calendarKeys().Read(r, calendar, &dates)
		if r.Missing(calendar, "dates") {
			r.Fault(calendar.AtKey(), "[%s] has no dates; set dates", calendar.Path)
		}
		to[calendar.Name] = dates
	})
}

var datePattern = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`)

// readDay reads a day from a string or from a TOML date.
func readDay(r *schema.Reader, v document.Value) (string, bool) {
	if t, isTime := v.Raw.(time.Time); isTime && t.Location().String() == "date-local" { // the TOML library gives this location to dates
		return t.Format(time.DateOnly), true
	}
	return schema.Parsed(r, v, `a day without a time, such as "2026-12-25"`, func(s string) (string, error) {
		_, err := time.Parse(time.DateOnly, s)
		switch {
		case !datePattern.MatchString(s):
			return s, errors.New(`is not a day; write one such as "2026-12-25"`)
		case err != nil:
			return s, errors.New("is no day of the calendar")
		}
		return s, nil
	})
}

// readInstant reads an RFC 3339 time from a string or from a TOML date-time. It refuses a time without an offset, because the meaning of such a time depends
// on the machine.
func readInstant(r *schema.Reader, v document.Value) (time.Time, bool) {
	const want = `a time with its offset from UTC, such as "2026-01-31T09:00:00Z" or "2026-01-31T09:00:00+01:00"`
	if t, isTime := v.Raw.(time.Time); isTime {
		if strings.HasSuffix(t.Location().String(), "-local") { // the TOML library gives such a location to times without an offset
			r.Fault(v, "%q must be %s; this has no offset", v.Name, want)
			return time.Time{}, false
		}
		if !validOffset(v.Written()) {
			r.Fault(v, "%q must be %s; an offset is at most 23:59", v.Name, want)
			return time.Time{}, false
		}
		return t.UTC(), true
	}
	return schema.Parsed(r, v, want, func(s string) (time.Time, error) {
		t, err := time.Parse(time.RFC3339, s)
		if err != nil || !validOffset(s) {
			return t, errors.New("is not " + want)
		}
		return t.UTC(), nil
	})
}

var offsetPattern = regexp.MustCompile(`[+-]([0-9]{2}):([0-9]{2})$`)

// validOffset reports whether RFC 3339 permits the offset of a time. The TOML library and package time also accept offsets such as +24:00 and +01:60.
func validOffset(s string) bool {
	m := offsetPattern.FindStringSubmatch(s)
	return m == nil || m[1] <= "23" && m[2] <= "59"
}

// readExceptions reads names of calendars and cron expressions. An empty list removes the exceptions of [defaults].
func readExceptions(r *schema.Reader, v document.Value) ([]expression, bool) {
	if list, isList := v.Raw.([]any); isList && len(list) == 0 {
		return nil, true
	}
	return readExpressions(r, v, `the name of a calendar or an expression such as "* * 24 12 *", in a string, or a list of them`)
}

// finishExcept looks up the calendars of the job's exceptions and returns the cron expressions. An exception that contains a blank or begins with @ is an
// expression.
func finishExcept(r *schema.Reader, d *draft, known calendars) (exprs []expression) {
	for _, e := range d.except {
		dates, found := known[e.Text]
		switch {
		case e.Open:
		case strings.HasPrefix(e.Text, "@") || strings.ContainsAny(e.Text, " \t"):
			exprs = append(exprs, e)
		case found:
			d.ExceptDates = append(d.ExceptDates, dates...)
		default:
			remedy := `define [calendars.NAME], or write an expression such as "* * 24 12 *"`
			r.Fault(e.Value, "except %q is no calendar%s", e.Raw, suggestName(e.Expansion, slices.Collect(maps.Keys(known)), remedy))
		}
	}
	d.Except = textsOf(exprs)
	slices.Sort(d.ExceptDates)
	d.ExceptDates = slices.Compact(d.ExceptDates)
	return exprs
}
