package config

import "testing"

// An expression that other crons read in another way is a warning with the reading, at its place.
func TestOtherCronsReadOtherwise(t *testing.T) {
	for schedule, want := range map[string]string{
		"5/15 * * * *":         `jobs.toml:3:13: warning: schedule: 5/15 is 5,20,35,50 here; Debian's cron refuses it; 5-59/15 means the same everywhere`,
		"0 9 * * sat-sun":      `jobs.toml:3:21: warning: schedule: the range is Saturday to Sunday here; Debian's cron and cronie accept it, and it matches no day there; 6-7 means the same everywhere`,
		"0 9 * * 1,fri-sun":    `jobs.toml:3:23: warning: schedule: the range is Friday to Sunday here; Debian's cron and cronie accept it, and it matches no day there; 5-7 means the same everywhere`,
		"0,20,40 2 * * *":      `jobs.toml:3:13: warning: schedule: the clock of Europe/Berlin skips 3 of these times at once in spring; they are one run here; Debian's cron runs each of them`,
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
