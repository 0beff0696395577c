package document

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// tricky has texts that are difficult for a scanner of keys and brackets.
var tricky = []string{
	"a = 1\nb.c = 2\nb.d.e = 3\n",
	"\"quoted key\" = 1\n'lit\\eral' = 2\n\"\" = 3\n\"\\u00e9\\x41\\e\" = 4\n\"a.b\".c = 5\n",
	"[a.b]\nx = 1\n[a]\ny = 2\n[a.b.c]\nz = 3\n",
	"[ a . \"b c\" . d ] # ] = [\nx = 1\n",
	"[[list]]\nx = 1\n[list.sub]\ny = 1\n[[list]]\nx = 2\n[[list.inner]]\nz = 1\n[[list.inner]]\nz = 2\n",
	"s = '''\nkey = 1\n[table]\n'''\nt = \"\"\"a\\\n    b = \\\"\\\"\\\" \"\" ]\"\"\"\nu = 1\n",
	"a = \"\"\"\"two\"\"\"\"\"\nb = ''''one''''\nc = \"\"\nd = ''\ne = \"\"\"\"\"\"\nf = 1\n",
	"a = [ [1, 2], # ] comment\n [\"x]\", 'y]', \"\"\"z\n]\"\"\"], ]\nb = 1\n",
	"a = { b = 1, c.d = 2, \"e f\" = [ { g = 1 }, { h = 2 } ] }\nb = {}\nc = []\n",
	"a = { # over several lines\n b = 1,\n c = [1,\n 2],\n}\nd = 2\n",
	"d = 1979-05-27 07:32:00\nt = 07:32:00\nf = 1e3\ni = 1_000\nn = -inf\nb = true # comment\nz=1",
	"\xfe\xff", "\ufeff\ufeffa = 1",
	"\ufeffa = 1\r\n[b]\r\nc = \"x\"\r\n",
	"1 = 1\n1.2 = 3\n[3.4]\n5 = 6\n",
	"[t]\na.b.c = 1\na.b.d = 2\na.e = { f.g = 3 }\n",
	"x = \"é\\\"\" # ü\ny = 'ö'\n",
}

func TestPlacesAgreeWithTheLibrary(t *testing.T) {
	for _, text := range tricky {
		if fault := disagreement(text); fault != "" {
			t.Errorf("%s\nin\n%s", fault, text)
		}
	}
}

// disagreement compares the places with the result of the library for valid text. Both must have the same keys and lengths of lists. Keys and strings must
// be in the text at their places, and columns must be positive.
func disagreement(text string) string {
	f := New("f", text)
	if len(f.Parse(NewBounds())) > 0 {
		return ""
	}
	var tree map[string]any
	meta, err := toml.Decode(f.text.string, &tree)
	if err != nil {
		return fmt.Sprintf("the library: %v", err)
	}
	places, twins, _ := scanText(f.text.string, NewBounds())
	if len(twins) > 0 {
		return fmt.Sprintf("%v are there twice", twins)
	}
	for _, key := range meta.Keys() {
		if p := at(places, key); p == nil || !p.given {
			return fmt.Sprintf("key %v has no place", key)
		}
	}
	return f.compare(places, tree, "")
}

// at returns the place of a key. For a table in parts it is the place in one part that has the key.
func at(p *place, key toml.Key) *place {
	if len(key) == 0 {
		return p
	}
	for _, item := range append([]*place{p}, parts(p)...) {
		if c := item.keys[key[0]]; c != nil {
			if found := at(c, key[1:]); found != nil {
				return found
			}
		}
	}
	return nil
}

// parts returns all elements of a list, and of lists in it.
func parts(p *place) []*place {
	all := slices.Clone(p.items)
	for _, item := range p.items {
		all = append(all, parts(item)...)
	}
	return all
}

func (f *File) compare(p *place, raw any, path string) string {
	switch v := raw.(type) {
	case map[string]any:
		if !maps.Equal(present(v), present(p.keys)) {
			return fmt.Sprintf("%s has the keys %v, and places for %v", path, present(v), present(p.keys))
		}
		for key, child := range v {
			if fault := f.spelled(p.keys[key].key, key); fault != "" {
				return fault
			}
			if fault := f.compare(p.keys[key], child, path+"."+key); fault != "" {
				return fault
			}
		}
	case []map[string]any:
		for i := range v {
			if len(p.items) != len(v) {
				return fmt.Sprintf("%s has %d parts, and places for %d", path, len(v), len(p.items))
			}
			if fault := f.compare(p.items[i], v[i], path); fault != "" {
				return fault
			}
		}
	case []any:
		if len(p.items) != len(v) {
			return fmt.Sprintf("%s has %d elements, and places for %d", path, len(v), len(p.items))
		}
		for i := range v {
			if fault := f.compare(p.items[i], v[i], path); fault != "" {
				return fault
			}
		}
	case string:
		return f.spelled(p.val, v)
	}
	return ""
}

// spelled checks that a key or string is written at its place.
func (f *File) spelled(at int, want string) string {
	line, column := f.text.lineAndColumn(at)
	if line < 1 || column < 1 {
		return fmt.Sprintf("%q is at %d:%d", want, line, column)
	}
	got := &scanner{src: f.text.string, pos: at}
	if word := got.readWord(); word != want {
		return fmt.Sprintf("%q should be at %d:%d, where %q is", want, line, column, word)
	}
	return ""
}

func present[T any](m map[string]T) map[string]bool {
	keys := make(map[string]bool)
	for key := range m {
		keys[key] = true
	}
	return keys
}

func TestOffsetsInStrings(t *testing.T) {
	for _, c := range []struct{ text, find, want string }{
		{`"plain text"`, "text", `text"`},
		{`'C:\new'`, "new", `new'`},
		{`"a\tb\u00e9c"`, "c", `c"`},
		{`"a\\b\"c"`, "c", `c"`},
		{"\"\"\"\none\ntwo\"\"\"", "two", `two"""`},
		{"\"\"\"one\\\n   two\"\"\"", "two", `two"""`},
		{"'''\r\none'''", "one", "one'''"},
		{`"""a"b"""`, "b", `b"""`},
	} {
		var decoded strings.Builder
		end := eachPiece(c.text, 0, func(_ int, piece string) { decoded.WriteString(piece) })
		if end != len(c.text) {
			t.Errorf("%s ends at %d of %d", c.text, end, len(c.text))
		}
		got := c.text[writtenAt(c.text, 0, strings.Index(decoded.String(), c.find)):]
		if got != c.want {
			t.Errorf("%q in %s is found at %s", c.find, c.text, got)
		}
		if got := c.text[writtenAt(c.text, 0, decoded.Len()):]; strings.Trim(got, `"'`) != "" {
			t.Errorf("the end of %s is found at %s", c.text, got)
		}
	}
}

// FuzzPlaces compares the places with the result of the library.
// Promise: P8
func FuzzPlaces(f *testing.F) {
	for _, text := range tricky {
		f.Add(text)
	}
	for _, c := range redefinitions {
		f.Add(c.text)
	}
	examples, err := filepath.Glob("../testdata/faults/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range append(examples, "../../../jobs.example.toml") {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for part := range strings.SplitSeq(string(text), "-- jobs.toml --\n") {
			f.Add(part)
		}
	}
	f.Add("a = " + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth))
	f.Add("a = " + strings.Repeat("{a = ", maxDepth) + strings.Repeat("}", maxDepth))
	f.Add(strings.Repeat("a.", maxParts) + "a = 1")
	f.Fuzz(func(t *testing.T, text string) {
		if fault := disagreement(text); fault != "" {
			t.Errorf("%s in\n%s", fault, text)
		}
	})
}

// redefinitions has every form of a second definition, or of an addition to a complete value, that TOML forbids, with the expected message. It also has
// similar valid texts.
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

// TestRedefinitions checks that a second definition is refused in every form.
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

func TestBoundOfFiles(t *testing.T) {
	b := NewBounds()
	b.files = 0
	if err := b.Take(1); err == nil || err.Error() != "more than 10000 files" {
		t.Errorf("files: %v", err)
	}
}
