// Package schema reads the values of a configuration. It defines the types of values, such as durations and paths. Other packages define the keys, in a
// [Section] for each kind of table.
//
// A faulty value is reported and skipped, and reading continues.
package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/units"
)

// Reader reads values and reports faults in them.
type Reader struct {
	*document.Report
	variables Variables
	names     Names
	set       map[string]document.Value // values that First recorded, by path
	meant     map[string]bool           // paths of keys that were suggested for unknown keys
}

// Names helps to explain unknown keys.
type Names struct {
	// Home is called for a key that is unknown in a table. It returns the place where the key belongs, such as "in [redis]", or "" if no table has the key.
	Home func(key, table string) string
	// Synonyms maps the names of keys in other programs to the keys of cronclave.
	Synonyms map[string]string
}

// NewReader returns a reader that adds faults to a report.
func NewReader(to *document.Report, variables Variables, names Names) *Reader {
	return &Reader{Report: to, variables: variables, names: names, set: make(map[string]document.Value), meant: make(map[string]bool)}
}

// Noting returns a copy of the reader that records in taken which variables it replaces.
func (r *Reader) Noting(taken map[string]bool) *Reader {
	c := *r
	c.variables.Taken = taken
	return &c
}

// First records the value of a setting or a job. If its path was recorded before, First reports a fault and returns false.
func (r *Reader) First(v document.Value, kind string) bool {
	before, again := r.set[v.Path]
	if again {
		r.Fault(v.AtKey(), "%s", document.AlreadyDefined(kind, v.Name, before.KeyPlace()))
		return false
	}
	r.set[v.Path] = v
	return true
}

// Set returns the value that First recorded for a path.
func (r *Reader) Set(path string) (v document.Value, set bool) {
	v, set = r.set[path]
	return v, set
}

// Missing reports whether a table lacks a key. A key does not count as missing if it was suggested for an unknown key, which is probably a misspelling of it.
func (r *Reader) Missing(table document.Value, key string) bool {
	_, set := table.Get(key)
	return !set && !r.Meant(table.Path+"."+key)
}

// Meant reports whether the key with this path was suggested for an unknown key.
func (r *Reader) Meant(path string) bool { return r.meant[path] }

// Text reads a string and replaces its variables. want describes the expected value, for messages. ok is false after a fault.
func (r *Reader) Text(v document.Value, want string) (e Expansion, ok bool) {
	s, ok := v.Raw.(string)
	if !ok {
		r.Mistyped(v, want)
		return e, false
	}
	e = r.variables.Expand(s)
	for _, name := range e.Names {
		r.variables.Taken[name] = true
	}
	for _, w := range e.wrong {
		if r.Skip() {
			break
		}
		r.Fault(v.AtByte(w.at), "%s", w.message)
	}
	return e, len(e.wrong) == 0
}

// Checked reads a string that check accepts. The error of check is the end of a sentence that begins with the name of the key. A string that refers to an unset
// variable is not checked.
func (r *Reader) Checked(v document.Value, want string, check func(text string) error) (string, bool) {
	e, ok := r.Text(v, want)
	if !ok || e.Open {
		return e.Text, ok
	}
	if err := check(e.Text); err != nil {
		r.Fault(v, "%s %v", v.Name, err)
		return "", false
	}
	return e.Text, true
}

// Parsed reads a string and parses it. The text of an error of parse is the end of a sentence that begins with the string. The message shows the string as it
// is written in the file, without values from the environment. If the string refers to an unset variable, Parsed does not parse it and returns false.
func Parsed[T any](r *Reader, v document.Value, want string, parse func(string) (T, error)) (t T, ok bool) {
	e, ok := r.Text(v, want)
	if !ok || e.Open {
		return t, false
	}
	t, err := parse(e.Text)
	if err != nil {
		r.Fault(v, "%s %q %v", v.Name, v.Raw, err)
		return t, false
	}
	return t, true
}

// Within reads a duration from least to most.
func (r *Reader) Within(v document.Value, least, most time.Duration) (time.Duration, bool) {
	return Parsed(r, v, `a duration in a string, such as "90s" or "30d"`, func(s string) (time.Duration, error) {
		d, err := units.ParseDuration(s)
		switch {
		case err == nil && d < least:
			err = fmt.Errorf("is too short; %v is the least", least)
		case err == nil && d > most:
			err = fmt.Errorf("is too long; %v is the most", most)
		}
		return d, err
	})
}

// Limit reads a duration longer than zero. The given word stands for 0.
func (r *Reader) Limit(v document.Value, word string) (time.Duration, bool) {
	if v.Raw == word {
		return 0, true
	}
	return Parsed(r, v, `a duration in a string, such as "90s", or "`+word+`"`, func(s string) (time.Duration, error) {
		d, err := units.ParseDuration(s)
		switch {
		case s == word:
			return 0, nil
		case err != nil:
			return 0, fmt.Errorf(`%w; or write %q`, err, word)
		case d <= 0:
			return 0, fmt.Errorf(`must be longer than 0; or write %q`, word)
		}
		return d, nil
	})
}

// Size reads a number of bytes up to most. If most is 0, there is no limit.
func (r *Reader) Size(v document.Value, most int64) (int64, bool) {
	return Parsed(r, v, `a size in a string, such as "16KiB" or "64MiB"`, func(s string) (int64, error) {
		n, err := units.ParseSize(s)
		if err == nil && most > 0 && n > most {
			err = fmt.Errorf("is too large; %dMiB is the most", most>>20)
		}
		return n, err
	})
}

// Integer reads a whole number from least to most.
func (r *Reader) Integer(v document.Value, least, most int64) (int, bool) {
	n, ok := v.Raw.(int64)
	switch {
	case !ok:
		r.Mistyped(v, "a whole number")
	case n < least || n > most:
		r.Fault(v, "%q must be from %d to %d", v.Name, least, most)
		return 0, false
	}
	return int(n), ok
}

// Boolean reads true or false.
func (r *Reader) Boolean(v document.Value) (b, ok bool) {
	if b, ok = v.Raw.(bool); !ok {
		r.Mistyped(v, "true or false")
	}
	return b, ok
}

// Choice reads one of several words.
func (r *Reader) Choice(v document.Value, supported ...string) (string, bool) {
	quoted := make([]string, len(supported))
	for i, word := range supported {
		quoted[i] = strconv.Quote(word)
	}
	last := len(quoted) - 1
	words := strings.Join(quoted[:last], ", ") + " or " + quoted[last]
	e, ok := r.Text(v, words)
	if !ok || e.Open {
		return "", false
	}
	if !slices.Contains(supported, e.Text) {
		r.Fault(v, "%s %q is unknown; write %s", v.Name, v.Raw, words)
		return "", false
	}
	return e.Text, true
}

// List reads a non-empty list, and each element with the function element.
func List[T any](r *Reader, v document.Value, want string, element func(document.Value) (T, bool)) (all []T, ok bool) {
	if _, isList := v.Raw.([]any); !isList {
		r.Mistyped(v, want)
		return nil, false
	}
	ok = true
	for _, item := range v.Items() {
		one, fine := element(item)
		ok = ok && fine
		all = append(all, one)
	}
	if len(all) == 0 {
		r.Fault(v, "%q is empty; write %s", v.Name, want)
		return nil, false
	}
	return all, ok
}

// Words reads a non-empty list of non-empty strings.
func (r *Reader) Words(v document.Value) ([]string, bool) {
	const want = "a list of strings"
	return List(r, v, want, func(item document.Value) (string, bool) { return r.Word(item, want) })
}

// Word reads a non-empty string.
func (r *Reader) Word(v document.Value, want string) (string, bool) {
	e, ok := r.Text(v, want)
	if ok && e.Text == "" {
		r.Fault(v, "%q must not be empty", v.Name)
		return "", false
	}
	return e.Text, ok
}

// Path reads the path of a file or folder. A relative path is resolved against the folder of the configuration file.
func (r *Reader) Path(v document.Value) (string, bool) {
	path, ok := r.Word(v, "a path in a string")
	return v.Relative(path), ok
}

// Nearest returns the candidate with the fewest edits from word, or "" if none is close enough.
func Nearest(word string, candidates []string) string {
	best, least := "", max(1, len(word)/2)+1
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if len(word)-len(c) >= least { // the lengths alone differ by too many edits
			continue
		}
		if d := Edits(strings.ToLower(word), c); d < least {
			best, least = c, d
		}
	}
	return best
}

// Edits returns the optimal string alignment distance, which counts insertions, deletions, substitutions and swaps of adjacent bytes.
func Edits(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
