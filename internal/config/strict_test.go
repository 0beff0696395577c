package config

import (
	"strings"
	"testing"
)

// TestRedefinitionsHideNothing: each is told once, in a file that has other faults, and what they hold is passed over.
func TestRedefinitionsHideNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := loadConfig(t, `redis.url = "redis://h"
jobs.x = { schedule = "@daily", command = "true", command = "false", env = { A = "1", A = "2" } }
[redis]
url = 1
nothing = 2
[jobs.x]
lease = "1"
[jobs.y]
schedule = "@daily"
command = "true"
lease = "2"
`, Options{})
	want := []string{
		`jobs.toml:2:51: "command" is already set at jobs.toml:2:33; remove one of them`,
		`jobs.toml:2:87: "A" is already set at jobs.toml:2:78; remove one of them`,
		`jobs.toml:3:2: table "redis" is already defined at jobs.toml:1:1; join the two`,
		`jobs.toml:6:7: table "x" is already defined`,
		`jobs.toml:11:9: lease "2" is not a duration`,
	}
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		if i >= len(want) || !strings.HasPrefix(line, strings.Replace(want[i], `table "x"`, `job "x"`, 1)) {
			t.Errorf("%s", line)
		}
	}
	if len(lines) != len(want) {
		t.Errorf("%d faults, want %d", len(lines), len(want))
	}
}

// TestOffsets: RFC 3339 has none of a whole day or of sixty minutes.
func TestOffsets(t *testing.T) {
	for offset, good := range map[string]bool{"Z": true, "+00:00": true, "-23:59": true, "+23:59": true, "+01:60": false, "-00:60": false, "+24:00": false, "+24:59": false} {
		for _, text := range []string{"2026-01-31T09:00:00" + offset, `"2026-01-31T09:00:00` + offset + `"`, "2026-01-31 09:00:00.5" + offset + " # +01:00"} {
			t.Chdir(t.TempDir())
			_, err := loadConfig(t, "[jobs.a]\nschedule = '@daily'\ncommand = 'true'\nstarts_at = "+text+"\n", Options{})
			if good != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), "jobs.toml:4:13: ") {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}
