package cluster

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

func zoneOf(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := cronspec.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// A time by a clock that is set is found, and the remark says how the clock was set.
func TestInstantsByTheClockOfAZone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ zone, text, want, remark string }{
		{"Europe/Berlin", "2026-11-26T03:00:00Z", "2026-11-26T04:00:00+01:00", ""},
		{"Europe/Berlin", "2026-11-26 03:00", "2026-11-26T03:00:00+01:00", ""},
		{"Europe/Berlin", "2026-07-26T03:00:07", "2026-07-26T03:00:07+02:00", ""},
		{"UTC", "2026-11-26 03:00:01", "2026-11-26T03:00:01Z", ""},
		{"Europe/Berlin", "2026-03-29 02:30", "2026-03-29T03:00:00+02:00", "jumps from 2026-03-29 02:00:00 to 2026-03-29 03:00:00"},
		{"Europe/Berlin", "2026-03-29 02:00", "2026-03-29T03:00:00+02:00", "jumps from 2026-03-29 02:00:00"},
		{"Europe/Berlin", "2026-03-29 03:00", "2026-03-29T03:00:00+02:00", ""},
		{"Europe/Berlin", "2026-10-25 02:30", "2026-10-25T02:30:00+02:00", "the second is 2026-10-25T02:30:00+01:00"},
		{"Europe/Berlin", "2026-10-25 03:00", "2026-10-25T03:00:00+01:00", ""},
		{"Pacific/Apia", "2011-12-30 12:00", "2011-12-31T00:00:00+14:00", "jumps from 2011-12-30 00:00:00 to 2011-12-31 00:00:00"},
		{"Europe/Berlin", "2040-12-31 12:00", "2040-12-31T12:00:00+01:00", ""}, // the last day of a leap year, after the changes that the data list
		{"America/New_York", "2026-11-01 01:59:59", "2026-11-01T01:59:59-04:00", "the second is 2026-11-01T01:59:59-05:00"},
	} {
		i, err := readInstant(tc.text, zoneOf(t, tc.zone))
		if err != nil || i.at.Format(time.RFC3339) != tc.want || (i.remark == "") != (tc.remark == "") || !strings.Contains(i.remark, tc.remark) {
			t.Errorf("%s in %s: %s, %q, %v", tc.text, tc.zone, i.at.Format(time.RFC3339), i.remark, err)
		}
	}
	for _, text := range []string{"", "yesterday", "3:00", "2026-02-30 03:00", "2026-11-26 25:00"} {
		if _, err := readInstant(text, time.UTC); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A time without a date is the newest one. now and a duration are the newest tick until then.
func TestRecentInstants(t *testing.T) {
	t.Parallel()
	berlin := zoneOf(t, "Europe/Berlin")
	daily, err := cronspec.Parse([]string{"0 3 * * *"}, cronspec.Options{Name: "j", Location: berlin})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ now, text, want string }{
		{"2026-07-26T10:00:00+02:00", "03:00", "2026-07-26T03:00:00+02:00"},
		{"2026-07-26T10:00:00+02:00", "3:00:07", "2026-07-26T03:00:07+02:00"},
		{"2026-07-26T10:00:00+02:00", "10:00", "2026-07-26T10:00:00+02:00"},
		{"2026-07-26T10:00:00+02:00", "10:01", "2026-07-25T10:01:00+02:00"},
		{"2026-07-25T22:30:00Z", "00:10", "2026-07-26T00:10:00+02:00"}, // the date is by the job's zone
		{"2026-03-29T12:00:00Z", "02:30", "2026-03-29T03:00:00+02:00"}, // skipped by the clock
		{"2026-07-26T10:00:00+02:00", "now", "2026-07-26T03:00:00+02:00"},
		{"2026-07-26T03:00:00+02:00", "now", "2026-07-26T03:00:00+02:00"},
		{"2026-07-26T03:04:59+02:00", "-5m", "2026-07-25T03:00:00+02:00"},
		{"2026-07-26T10:00:00+02:00", "-1d", "2026-07-25T03:00:00+02:00"},
	} {
		now, err := time.Parse(time.RFC3339, tc.now)
		if err != nil {
			t.Fatal(err)
		}
		if i, ok := readRecent(tc.text, berlin, now, daily); !ok || i.at.Format(time.RFC3339) != tc.want {
			t.Errorf("%s at %s: %s, %v, want %s", tc.text, tc.now, i.at.Format(time.RFC3339), ok, tc.want)
		}
	}
	for _, text := range []string{"", "yesterday", "5m", "+5m", "-", "--5m", "-x", "25:00", "nows"} {
		if i, ok := readRecent(text, berlin, time.Now(), daily); ok {
			t.Errorf("%q is %v", text, i.at)
		}
	}
}

// An instant that is no tick has its schedule, its bounds or its exception named.
func TestWhyAnInstantIsNoTick(t *testing.T) {
	t.Parallel()
	info := journal.JobInfo{Name: "j", Timezone: "Europe/Berlin", Schedule: []string{"0 * * * *"}, Except: []string{"0 12 * * *", "0 13 * * *"}, ExceptDates: []string{"2026-12-25"},
		StartsAt: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), ExpiresAt: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}
	for text, want := range map[string]string{
		"2026-11-26 11:00": "",
		"2026-11-26 11:01": "its schedule does not name it",
		"2026-11-26 13:00": `except = "0 13 * * *" takes it out`,
		"2026-12-25 11:00": "a calendar of the job's except has this day",
		"2025-12-31 11:00": "it is before starts_at, 2026-01-01T01:00:00+01:00",
		"2027-01-01 01:00": "it is not before expires_at, 2027-01-01T01:00:00+01:00",
	} {
		i, err := readInstant(text, zoneOf(t, info.Timezone))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := noTick(nil, info, i); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
	if _, err := noTick(nil, journal.JobInfo{Name: "j", Timezone: "UTC", Schedule: []string{"nonsense"}}, instant{at: time.Now()}); err == nil {
		t.Error("a schedule that can't be read is no reason")
	}
}

// randomInstant is a quarter of an hour of 2026 in the night, half of the time within hours of a change of the clock.
func randomInstant(random *rand.Rand, zone *time.Location) time.Time {
	day := time.Date(2026, 1, 1+random.IntN(365), 0, 0, 0, 0, zone)
	if _, change := day.ZoneBounds(); random.IntN(2) == 0 && !change.IsZero() {
		day = change.Add(-3 * time.Hour)
	}
	return day.Add(time.Duration(random.IntN(24)) * 15 * time.Minute).UTC()
}

// firesAt looks at the face of the clock: at the instant it shows the time or a later one for the first time on that day.
func firesAt(at time.Time, zone *time.Location, hour, minute int) bool {
	face := func(t time.Time) time.Time {
		l := t.In(zone)
		return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), l.Second(), 0, time.UTC)
	}
	now := face(at)
	target := time.Date(now.Year(), now.Month(), now.Day(), hour, minute, 0, 0, time.UTC)
	if now.Before(target) {
		return false
	}
	for back := time.Second; back <= 26*time.Hour; back += 15 * time.Minute { // it changes at quarters of an hour
		if !face(at.Add(-back)).Before(target) {
			return false
		}
	}
	return true
}
