package config

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Jobs take exceptions from [defaults], from calendars in other files, and in both ways to write a day and a time.
func TestExcept(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, ".", `
-- jobs.toml --
include = ["days.toml"]
timezone = "Asia/Tokyo"
[defaults]
schedule = "@daily"
command = "true"
except = ["summer", "winter", "0 0 1 2 *"]
starts_at = 2026-01-01T00:00:00+09:00
[jobs.a]
[jobs.b]
except = "winter"
expires_at = "2026-12-28T00:00:00+09:00"
[jobs.c]
except = []
starts_at = "${START}"
-- days.toml --
calendars.summer = { dates = [2026-12-26, "2026-08-01"] }
[calendars.winter]
dates = ["2026-12-26", "2026-12-25", "2026-12-25"]
`)
	c, err := Load("jobs.toml", Options{Env: environment("START=2026-12-24T00:00:00Z")})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"0 0 1 2 *|2026-08-01,2026-12-25,2026-12-26|2025-12-31T15:00:00Z|0001-01-01T00:00:00Z|23 24 27 28 29",
		"|2026-12-25,2026-12-26|2025-12-31T15:00:00Z|2026-12-27T15:00:00Z|23 24 27",
		"||2026-12-24T00:00:00Z|0001-01-01T00:00:00Z|25 26 27 28 29", // at nine in Tokyo
	} {
		j := c.Jobs[i]
		var days []string
		until := time.Date(2026, 12, 29, 12, 0, 0, 0, j.Location)
		for at := j.Spec.Next(time.Date(2026, 12, 22, 12, 0, 0, 0, j.Location)); !at.IsZero() && at.Before(until); at = j.Spec.Next(at) {
			days = append(days, at.In(j.Location).Format("2"))
		}
		got := strings.Join([]string{strings.Join(j.Except, ","), strings.Join(j.ExceptDates, ","), j.StartsAt.Format(time.RFC3339),
			j.ExpiresAt.Format(time.RFC3339), strings.Join(days, " ")}, "|")
		if got != want {
			t.Errorf("%s\ngot  %s\nwant %s", j.Name, got, want)
		}
	}
}

// TestExpired: a job that has expired is warned of from its last tick on, unless it is off.
func TestExpired(t *testing.T) {
	t.Chdir(t.TempDir())
	const job = "[jobs.a]\nschedule = '@daily'\ncommand = 'true'\nexpires_at = 2026-12-28T12:00:00Z\n"
	last := time.Date(2026, 12, 28, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		text string
		now  time.Time
		want int
	}{
		{job, last.Add(-time.Second), 0},
		{job, last, 1},
		{job, last.AddDate(1, 0, 0), 1},
		{job + "enabled = false\n", last.AddDate(1, 0, 0), 0},
	} {
		c, err := loadConfig(t, tc.text, Options{Env: environment(), Now: func() time.Time { return tc.now }})
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Warnings) != tc.want || slices.ContainsFunc(c.Warnings, func(f Fault) bool { return f.Line != 4 || f.Column != 14 }) {
			t.Errorf("at %v: %v, want %d", tc.now, c.Warnings, tc.want)
		}
	}
}

// An exception that holds an unset variable leaves the schedule unknown.
func TestExceptLeftOpen(t *testing.T) {
	t.Chdir(t.TempDir())
	c, err := loadConfig(t, "[jobs.a]\nschedule = '@daily'\ncommand = 'true'\nexcept = ['${A}', '${A} * * * *']\nstarts_at = '${A}'\n",
		Options{Env: environment(), KeepUnset: true})
	if err != nil || c.Jobs[0].Spec != nil {
		t.Errorf("%v, %v", c, err)
	}
}
