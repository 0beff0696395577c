package document

import "testing"

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
		f := New("f", tc.text)
		if got := f.Parse(NewBounds()).Error(); got != tc.want {
			t.Errorf("%s\nfound %s\nwant  %s", tc.text, got, tc.want)
		}
		if _, ok := f.Root(); !ok {
			t.Errorf("%s\nhides what else is there", tc.text)
		}
	}
}
