package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestExcept checks exceptions from [defaults] and from calendars in other files, and both notations of days and times.
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

// TestExpired checks the warning about a job after its last tick. A disabled job has none.
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

// TestExceptLeftOpen checks that an unset variable in an exception leaves the schedule unknown.
func TestExceptLeftOpen(t *testing.T) {
	t.Chdir(t.TempDir())
	c, err := loadConfig(t, "[jobs.a]\nschedule = '@daily'\ncommand = 'true'\nexcept = ['${A}', '${A} * * * *']\nstarts_at = '${A}'\n",
		Options{Env: environment(), KeepUnset: true})
	if err != nil || c.Jobs[0].Spec != nil {
		t.Errorf("%v, %v", c, err)
	}
}

// TestOtherCronsReadOtherwise checks the warning about an expression that other crons interpret differently.
func TestOtherCronsReadOtherwise(t *testing.T) {
	for schedule, want := range map[string]string{
		"5/15 * * * *":         `jobs.toml:3:13: warning: schedule: 5/15 is 5,20,35,50 here; Debian's cron refuses it; 5-59/15 means the same everywhere`,
		"0 9 * * sat-sun":      `jobs.toml:3:21: warning: schedule: the range is Saturday to Sunday here; Debian's cron and cronie accept it, and it matches no day there; 6-7 means the same everywhere`,
		"0 9 * * 1,fri-sun":    `jobs.toml:3:23: warning: schedule: the range is Friday to Sunday here; Debian's cron and cronie accept it, and it matches no day there; 5-7 means the same everywhere`,
		"0,20,40 2 * * *":      `jobs.toml:3:13: warning: schedule: the clock of Europe/Berlin skips 3 of these times at once in spring; they are one run here; Debian's cron runs each of them`,
		"0 0 */2 * 1":          `jobs.toml:3:17: warning: schedule: a day must match both "*/2" and "1" here, as in Debian's cron; busybox, supercronic and Kubernetes take a day that matches either; 1-31/2 means either everywhere`,
		"0 0 1,15 * */2":       `jobs.toml:3:24: warning: schedule: a day must match both "*/2" and "1,15" here, as in Debian's cron; busybox, supercronic and Kubernetes take a day that matches either; 0-6/2 means either everywhere`,
		"0 0 */2 * *":          "",
		"0 0 1-31/2 * 1":       "",
		"0 0-23 * * *":         "",
		"30 2 * * *":           "",
		"*/20 2 * * *":         "",
		"*/15 9-17 * * 1-5":    "",
		"0 9 * * 5-7":          "",
		"0 9 * * 0,6":          "",
		"H/15 H(0-7) * * *":    "",
		"@daily":               "",
		"0 0 1-31/2 1-12/11 *": "",
	} {
		t.Chdir(t.TempDir())
		cfg, err := loadConfig(t, "timezone = 'Europe/Berlin'\n[jobs.a]\nschedule = '"+schedule+"'\ncommand = 'true'\n", Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, w := range cfg.Warnings {
			got += (Faults{w}).Error()
		}
		if got != want {
			t.Errorf("%s: %s\nwant %s", schedule, got, want)
		}
	}
}

const oldZones = "../zonedata/testdata/2025c.zip"

func loadWith(t *testing.T, text string, o Options) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path, o)
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

const vancouver = "[jobs.v]\nschedule = \"0 9 * * *\"\ntimezone = \"America/Vancouver\"\ncommand = [\"/bin/true\"]\n"

func TestZoneDataReplacesTheBuiltInData(t *testing.T) {
	old := "zone_data = '" + absolute(t, oldZones) + "'\n"
	noon := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	digests := map[string]bool{}
	for text, want := range map[string]string{vancouver: "2026f 16:00", old + vancouver: "2025c 17:00", "timezone = 'Cuba'\n" + old + "[defaults]\ntimezone = 'America/Vancouver'\n" + vancouver: "2025c 17:00"} {
		c, err := loadWith(t, text, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Zones.Version() + " " + c.Jobs[0].Spec.Next(noon).Format("15:04"); got != want {
			t.Errorf("%s\n09:00 in Vancouver by %s, want %s", text, got, want)
		}
		digests[c.Digest()] = true
	}
	if len(digests) != 1 {
		t.Errorf("the digest depends on the zone data, which is the affair of a replica: %v", digests)
	}
}

func TestZoneDataFaultsHaveTheirPlace(t *testing.T) {
	folder := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"no version":      {"zone_data = '" + folder + "'\n" + vancouver, ":1:13: zone_data cannot be used: " + folder + " states no version: write it, such as \"2026f\", to " + folder + "/+VERSION"},
		"not there":       {"zone_data = '" + folder + "/none'\n" + vancouver, ":1:13: zone_data cannot be used: "},
		"a missing zone":  {"zone_data = '" + absolute(t, oldZones) + "'\ntimezone = 'Pacific/Tongatapu'\n" + vancouver, "not a time zone in the zone data 2025c"},
		"twice in a file": {"include = ['more.toml']\nzone_data = 7\n" + vancouver, "a path in a string"},
	} {
		_, err := loadWith(t, c.text, Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
	_, err := loadWith(t, "zone_data = '"+folder+"/none'\n[jobs.v]\nschedule = '99 * * * *'\ncommand = ['/bin/true']\n", Options{})
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 2 {
		t.Errorf("of zone data and a schedule that are both faulty: %v", err)
	}
	c, err := loadWith(t, "zone_data = '"+folder+"/none'\n"+vancouver, Options{KeepUnset: true})
	if err != nil || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0].Message, "not on this machine") {
		t.Errorf("for another machine: %v, %v", c, err)
	}
}

func TestNewerZonesOfTheMachineAreAWarning(t *testing.T) {
	machine := func(version string) Options {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "tzdata.zi"), []byte("# version "+version+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return Options{Machine: true, SystemZones: folder}
	}
	inUTC := "[jobs.u]\nschedule = '0 9 * * *'\ncommand = ['/bin/true']\n"
	for name, c := range map[string]struct {
		text  string
		o     Options
		warns bool
	}{
		"newer":                {vancouver, machine("2027a"), true},
		"the same":             {vancouver, machine("2026f"), false},
		"older":                {vancouver, machine("2025b"), false},
		"newer than zone_data": {"zone_data = '" + absolute(t, oldZones) + "'\n" + vancouver, machine("2026a"), true},
		"no version":           {vancouver, Options{Machine: true, SystemZones: t.TempDir()}, false},
		"no zone but UTC":      {inUTC, machine("2027a"), false},
		"of a running replica": {vancouver, Options{SystemZones: machine("2027a").SystemZones}, false},
	} {
		cfg, err := loadWith(t, c.text, c.o)
		if err != nil {
			t.Fatal(err)
		}
		want := `set zone_data = "` + c.o.SystemZones + `"`
		if warned := strings.Contains(cfg.Warnings.Error(), want); warned != c.warns {
			t.Errorf("%s: %v", name, cfg.Warnings)
		}
	}
}
