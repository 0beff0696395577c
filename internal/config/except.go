package config

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// calendars are days by the name of their calendar, each as "2026-12-25".
type calendars map[string][]string

func calendarKeys() section[[]string] {
	return section[[]string]{keys: []key[[]string]{{
		name: "dates", kind: "list of dates", allowed: "at least one, such as `\"2026-12-25\"`",
		doc: "The days of the calendar. A day counts by the time zone of the job that excepts it. Required.",
		read: func(r *reader, v value, to *[]string) {
			assign(to)(list(r, v, `a list of days such as ["2026-12-25"]`, r.day))
		},
	}}}
}

// readCalendars reads [calendars]: a table of named lists of days.
func readCalendars(r *reader, v value, t *top) {
	r.named(v, "calendar", func(calendar value) {
		var dates []string
		read(r, calendar, calendarKeys(), &dates)
		if _, set := calendar.get("dates"); !set && !r.meant[calendar.path+".dates"] {
			r.faultAt(calendar, calendar.at.key, "[%s] has no dates; set dates", calendar.path)
		}
		t.calendars[calendar.name] = dates
	})
}

var datePattern = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`)

// day reads a day, in a string or as TOML's own kind of date.
func (r *reader) day(v value) (string, bool) {
	if t, isTime := v.raw.(time.Time); isTime && t.Location().String() == "date-local" { // the library's mark
		return t.Format(time.DateOnly), true
	}
	return parsed(r, v, `a day without a time, such as "2026-12-25"`, func(s string) (string, error) {
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

// instant reads a time of RFC 3339, in a string or as TOML's own kind. Without an offset it would depend on the machine.
func (r *reader) instant(v value) (time.Time, bool) {
	const want = `a time with its offset from UTC, such as "2026-01-31T09:00:00Z" or "2026-01-31T09:00:00+01:00"`
	if t, isTime := v.raw.(time.Time); isTime {
		if strings.HasSuffix(t.Location().String(), "-local") { // the library's mark
			r.fault(v, "%q must be %s; this has no offset", v.name, want)
			return time.Time{}, false
		}
		if !validOffset(v.written()) {
			r.fault(v, "%q must be %s; an offset is at most 23:59", v.name, want)
			return time.Time{}, false
		}
		return t.UTC(), true
	}
	return parsed(r, v, want, func(s string) (time.Time, error) {
		t, err := time.Parse(time.RFC3339, s)
		if err != nil || !validOffset(s) {
			return t, errors.New("is not " + want)
		}
		return t.UTC(), nil
	})
}

var offsetPattern = regexp.MustCompile(`[+-]([0-9]{2}):([0-9]{2})$`)

// validOffset refuses offsets that RFC 3339 does not have, such as +24:00 and +01:60. Both the library and package time take them.
func validOffset(s string) bool {
	m := offsetPattern.FindStringSubmatch(s)
	return m == nil || m[1] <= "23" && m[2] <= "59"
}

// readExcept reads names and expressions. An empty list takes back what [defaults] except.
func readExcept(r *reader, v value, d *draft) {
	if list, isList := v.raw.([]any); isList && len(list) == 0 {
		d.except = nil
		return
	}
	assign(&d.except)(r.expressions(v, `the name of a calendar or an expression such as "* * 24 12 *", in a string, or a list of them`))
}

// finishExcept separates the expressions from the names of calendars: an expression contains a blank, or begins with @.
func (r *reader) finishExcept(d *draft, known calendars) (exprs []expression) {
	for _, e := range d.except {
		dates, found := known[e.text]
		switch {
		case e.open:
		case strings.HasPrefix(e.text, "@") || strings.ContainsAny(e.text, " \t"):
			exprs = append(exprs, e)
		case found:
			d.ExceptDates = append(d.ExceptDates, dates...)
		default:
			r.unknownCalendar(e, known)
		}
	}
	d.Except = textsOf(exprs)
	slices.Sort(d.ExceptDates)
	d.ExceptDates = slices.Compact(d.ExceptDates)
	return exprs
}

func (r *reader) unknownCalendar(e expression, known calendars) {
	hint := `; define [calendars.NAME], or write an expression such as "* * 24 12 *"`
	if near := nearest(e.text, slices.Collect(maps.Keys(known))); near != "" && len(e.names) == 0 {
		hint = "; did you mean \"" + near + "\"?"
	}
	r.fault(e.value, "except %q is no calendar%s", e.raw, hint)
}

// finishBounds checks what starts_at and expires_at leave of the ticks, and warns of a job that has none any more.
func (r *reader) finishBounds(d *draft, err error) {
	switch {
	case r.emptyTime(d):
		v := d.nearestPlace("expires_at", "starts_at")
		r.fault(v, "expires_at is not after starts_at, so the job has no ticks")
	case errors.Is(err, cronspec.ErrNoTick):
		set := slices.DeleteFunc([]string{"except", "expires_at", "starts_at"}, func(key string) bool { return d.at[key].at == nil })
		r.fault(d.nearestPlace(set...), "except, starts_at and expires_at leave no instant of the schedule; the job would never run")
	case d.Enabled && d.Spec != nil && !d.ExpiresAt.IsZero() && d.Spec.Next(r.options.Now()).IsZero():
		v := d.at["expires_at"]
		r.warn(v, v.at.val, "expires_at has passed, so the job has no ticks any more; remove the job, or let it expire later")
	}
}

func (r *reader) emptyTime(d *draft) bool {
	return !d.StartsAt.IsZero() && !d.ExpiresAt.IsZero() && !d.StartsAt.Before(d.ExpiresAt)
}
