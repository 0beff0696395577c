package config

import (
	"strings"
	"testing"
)

// redefinitions holds every form in which TOML forbids to define a key twice, or to add to a complete value, with the expected message; and their
// valid neighbours.
var redefinitions = []struct {
	text string
	want string // "" where the text is good
}{
	// Keys.
	{"a = 1\na = 2", `f:2:1: "a" is already set at f:1:1; remove one of them`},
	{"a.b = 1\na.b = 2", `f:2:3: "b" is already set at f:1:3; remove one of them`},
	{"\"a\" = 1\n'a' = 2", `f:2:1: "a" is already set at f:1:1; remove one of them`},
	{"a = 1\na.b = 2", `f:2:1: "a" is already set at f:1:1; remove one of them`},
	{"a.b = 1\na = 2", `f:2:1: "a" is already set at f:1:1; remove one of them`},
	{"a.b.c = 1\na.b = 2", `f:2:3: "b" is already set at f:1:3; remove one of them`},
	{"a.b = 1\na.c = 2", ""},
	{"a.b.c = 1\na.d = 2\na.b.e = 3", ""},
	// Headers.
	{"[a]\n[a]", `f:2:2: table "a" is already defined at f:1:2; join the two`},
	{"[a]\n[b]\n[a]\nx = 1", `f:3:2: table "a" is already defined at f:1:2; join the two`},
	{"[jobs.a]\n[jobs.b]\n[jobs.a]", `f:3:7: job "a" is already defined at f:1:7; give one of them another name`},
	{"a = 1\n[a]", `f:2:2: "a" is already set at f:1:1; remove one of them`},
	{"a = 1\n[a.b]", `f:2:2: "a" is already set at f:1:1; remove one of them`},
	{"[a]\nb = 1\n[a.b]", `f:3:4: "b" is already set at f:2:1; remove one of them`},
	{"[a.b]\n[a]\nb = 1", `f:3:1: "b" is already set at f:1:4; remove one of them`},
	{"[a.b.c]\n[a]\nb = 1", `f:3:1: "b" is already set at f:1:4; remove one of them`},
	{"[a.b.c]\n[a]\n[a.b]", ""},
	{"[a.b.c]\n[a.b.d]\n[a]\nx = 1", ""},
	// A table that dotted keys have made.
	{"redis.url = 'x'\n[redis]\npassword_file = 'y'", `f:2:2: table "redis" is already defined at f:1:1; join the two`},
	{"a.b.c = 1\n[a.b]", `f:2:4: table "b" is already defined at f:1:3; join the two`},
	{"[a]\nb.c = 1\n[a.b]", `f:3:4: table "b" is already defined at f:2:1; join the two`},
	{"a.b = 1\n[[a]]", `f:2:3: table "a" is already defined at f:1:1; join the two`},
	{"jobs.a.lease = '1s'\n[jobs.a]", `f:2:7: job "a" is already defined at f:1:6; give one of them another name`},
	{"[a]\nb.c = 1\n[a.b.d]", ""},
	{"a.b.c = 1\n[a.d]\n[a.b.e]", ""},
	// A table with a header, to which dotted keys would add.
	{"[jobs.a.env]\nX = '1'\n[jobs.a]\nenv.Y = '2'", `f:4:1: table "env" is already defined at f:1:9; join the two`},
	{"[a.b.c]\nx = 1\n[a]\nb.c.y = 2", `f:4:3: table "c" is already defined at f:1:6; join the two`},
	{"[a.b.c.d]\nx = 1\n[a]\nb.c.d.e.y = 2", `f:4:5: table "d" is already defined at f:1:8; join the two`},
	{"[a.b]\n[a]\nb = { x = 1 }", `f:3:1: "b" is already set at f:1:4; remove one of them`},
	{"[a.b.c]\n[a]\nb.x = 1", ""}, // b had no definition yet
	{"[a.b.c]\n[a]\nb.x = 1\n[a.b]", `f:4:4: table "b" is already defined at f:1:4; join the two`},
	// Tables in braces, and lists in brackets.
	{"jobs = { a = {} }\n[jobs.a]", `f:2:2: table "jobs" is already defined at f:1:1; join the two`},
	{"jobs = {}\n[jobs.a]", `f:2:2: table "jobs" is already defined at f:1:1; join the two`},
	{"a = {}\n[a]", `f:2:2: table "a" is already defined at f:1:1; join the two`},
	{"a = {}\n[[a]]", `f:2:3: table "a" is already defined at f:1:1; join the two`},
	{"a = { b = {} }\n[a.b.c]", `f:2:2: table "a" is already defined at f:1:1; join the two`},
	{"a = { b = 1 }\na.c = 2", `f:2:1: table "a" is already defined at f:1:1; join the two`},
	{"[a]\nb = {}\nb.c = 1", `f:3:1: table "b" is already defined at f:2:1; join the two`},
	{"a = { b = {}, b.c = 1 }", `f:1:15: table "b" is already defined at f:1:7; join the two`},
	{"a = { b.c = 1, b.c = 2 }", `f:1:18: "c" is already set at f:1:9; remove one of them`},
	{"a = { b.c = 1, b = 2 }", `f:1:16: "b" is already set at f:1:7; remove one of them`},
	{"a = [ { b = 1, b = 2 } ]", `f:1:16: "b" is already set at f:1:9; remove one of them`},
	{"a = []\n[[a]]", `f:2:3: "a" is already set at f:1:1; remove one of them`},
	{"a = [{}]\n[a.b]", `f:2:2: "a" is already set at f:1:1; remove one of them`},
	{"a = [{}]\na.b = 1", `f:2:1: "a" is already set at f:1:1; remove one of them`},
	{"a = { b.c = 1, b.d = 2 }\n[e]\nf = {}\ng = [{ h = 1 }, { h = 2 }]", ""},
	// Tables in parts.
	{"[[a]]\n[a]", `f:2:2: table "a" is already defined at f:1:3; join the two`},
	{"[a]\n[[a]]", `f:2:3: table "a" is already defined at f:1:2; join the two`},
	{"[a.b]\n[[a]]", `f:2:3: table "a" is already defined at f:1:2; join the two`},
	{"[[a.b]]\n[a]\nb.c = 1", `f:3:1: table "b" is already defined at f:1:5; join the two`},
	{"[[a.b]]\n[a]\nb = 1", `f:3:1: "b" is already set at f:1:5; remove one of them`},
	{"[[a]]\nb = 1\n[[a.b]]", `f:3:5: "b" is already set at f:2:1; remove one of them`},
	{"[[a]]\n[a.b]\n[a.b]", `f:3:4: table "b" is already defined at f:2:4; join the two`},
	{"[[a]]\nb.c = 1\n[a.b]", `f:3:4: table "b" is already defined at f:2:1; join the two`},
	{"[[a]]\nb = 1\n[[a]]\nb = 2\n[a.c]\n[[a]]\n[a.c]\n[[a.d]]\n[[a.d]]", ""},
	{"[[a.b]]\n[a]\nc = 1\n[[a.b]]", ""},
}

// TestRedefinitions refuses keys that are defined twice, in whatever form of TOML.
// Promise: P8
func TestRedefinitions(t *testing.T) {
	for _, tc := range redefinitions {
		s, b := newSource("f", tc.text), newBounds()
		if got := s.parse(&b).Error(); got != tc.want {
			t.Errorf("%s\nfound %s\nwant  %s", tc.text, got, tc.want)
		}
		if s.tree == nil {
			t.Errorf("%s\nhides what else is there", tc.text)
		}
	}
}

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
