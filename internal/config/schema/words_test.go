package schema

import "testing"

func TestExpand(t *testing.T) {
	env := func(name string) (string, bool) {
		value, set := map[string]string{"A": "a", "EMPTY": "", "LIKE": "${A}$${A}"}[name]
		return value, set
	}
	set, left := Variables{Lookup: env}, Variables{Lookup: env, KeepUnset: true}
	for s, want := range map[string][2]string{ // text, literal
		"":                     {"", ""},
		"x$Ay$":                {"x$Ay$", "x$Ay$"},
		"${A}${A:-b}c":         {"aac", "bc"},
		"<${EMPTY}>":           {"<>", "<>"},
		"${EMPTY:-b}${NO:-}":   {"b", "b"},
		"${NO:-x$y:-z}":        {"x$y:-z", "x$y:-z"},
		"$${A}$$${A}$$":        {"${A}$${A}$$", "${A}$${A}$$"},
		"${LIKE}":              {"${A}$${A}", ""},
		"é${A}\n${NO:-1\n2}\n": {"éa\n1\n2\n", "é\n1\n2\n"},
	} {
		e := set.Expand(s)
		if e.Text != want[0] || e.Literal != want[1] || len(e.wrong) > 0 || e.Open {
			t.Errorf("%q: %+v, want %q", s, e, want)
		}
	}
	for s, at := range map[string]int{"${NO}": 0, "é${": 2, "${}": 0, "${1}": 0, "a${A-b}": 1, "${A:-${A}}": 0, "$${${ A}": 3, "${A:b}": 0} {
		if e := set.Expand(s); len(e.wrong) != 1 || e.wrong[0].at != at {
			t.Errorf("%q: %+v, want a fault at %d", s, e.wrong, at)
		}
	}
	if e := left.Expand("${NO}${A}${NO:-x}"); e.Text != "${NO}ax" || !e.Open || len(e.wrong) > 0 {
		t.Errorf("%+v", e)
	}
}

func TestNearest(t *testing.T) {
	keys := []string{"command", "schedule", "timeout", "timezone", "env", "env_file", "jobs"}
	for word, want := range map[string]string{
		"comand": "command", "cmomand": "command", "Schedule": "schedule", "time_out": "timeout", "env-file": "env_file",
		"job": "jobs", "en": "env", "x": "", "frequency": "", "tmezone": "timezone",
	} {
		if got := Nearest(word, keys); got != want {
			t.Errorf("%q is nearest to %q, want %q", word, got, want)
		}
	}
}
