package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value is one TOML value with its place.
type value struct {
	src   *source
	at    *place
	path  string // of keys, as the user would write it: "jobs.backup.timeout"
	name  string // the last of them; an element of a list has its list's name
	raw   any
	takes map[string]bool // where the names of the variables that it takes from the environment are noted
}

// get returns the value of a key in a table.
func (v value) get(key string) (value, bool) {
	table, _ := v.raw.(map[string]any)
	raw, found := table[key]
	c := value{src: v.src, at: v.at, path: key, name: key, raw: raw, takes: v.takes}
	if v.path != "" {
		c.path = v.path + "." + key
	}
	if at := v.at.keys[key]; at != nil {
		c.at = at
	}
	return c, found
}

// items returns the elements of a list.
func (v value) items() []value {
	list, _ := v.raw.([]any)
	items := make([]value, len(list))
	for i, raw := range list {
		items[i] = v
		items[i].raw = raw
		if i < len(v.at.items) {
			items[i].at = v.at.items[i]
		}
	}
	return items
}

// where is the place of the value's key, for a fault elsewhere that points to it.
func (v value) where() string {
	line, column := v.src.position(v.at.key)
	return fmt.Sprintf("%s:%d:%d", v.src.name, line, column)
}

// written is the value as the file has it, where that is no string, list or table.
func (v value) written() string {
	rest := v.src.text[min(v.at.val, len(v.src.text)):]
	if end := strings.IndexAny(rest, ",]}#\r\n"); end >= 0 {
		rest = rest[:end]
	}
	return strings.TrimSpace(rest)
}

// offset returns where byte n of a string value is written.
func (v value) offset(n int) int {
	if at := v.at.val; at < len(v.src.text) && (v.src.text[at] == '"' || v.src.text[at] == '\'') {
		return written(v.src.text, at, n)
	}
	return v.at.val
}

// relative makes a path that this file names relative to the file's folder.
func (v value) relative(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(v.src.name), path)
}

// kind names the value's type as users know it.
func (v value) kind() string {
	switch v.raw.(type) {
	case string:
		return "a string"
	case int64:
		return "a whole number"
	case float64:
		return "a number with a fraction"
	case bool:
		return "true or false"
	case time.Time:
		return "a date"
	case map[string]any:
		return "a table"
	case []map[string]any:
		return "a list of tables"
	}
	return "a list"
}

// fault notes a fault at a value; faultAt does so at any byte of its file, and warn notes a warning.
func (r *reader) fault(v value, format string, args ...any) {
	r.faultAt(v, v.at.val, format, args...)
}

func (r *reader) faultAt(v value, at int, format string, args ...any) {
	if r.full() {
		r.count.faults++
		return
	}
	r.note(v.src.fault(at, format, args...))
}

func (r *reader) warn(v value, at int, format string, args ...any) {
	if r.count.warnings++; r.count.warnings > maxFaults {
		return
	}
	f := v.src.fault(at, format, args...)
	f.Warning = true
	r.faults = append(r.faults, f)
}

// note keeps a fault, unless there are many already.
func (r *reader) note(f Fault) {
	if r.count.faults++; r.count.faults <= maxFaults {
		r.faults = append(r.faults, f)
	}
}

// full says that no more faults are reported. The place and the words of one cost more the longer the file is.
func (r *reader) full() bool { return r.count.faults > maxFaults }

// mistyped notes that a value has the wrong type.
func (r *reader) mistyped(v value, want string) {
	r.fault(v, "%q must be %s; this is %s", v.name, want, v.kind())
}

// text returns a string value with its variables replaced; ok is false after a fault.
func (r *reader) text(v value, want string) (e expansion, ok bool) {
	s, ok := v.raw.(string)
	if !ok {
		r.mistyped(v, want)
		return e, false
	}
	e = expand(s, r.options.Env, r.options.KeepUnset)
	for _, name := range e.names {
		v.takes[name] = true
	}
	for _, w := range e.wrong {
		if r.full() {
			r.count.faults++
			break
		}
		r.faultAt(v, v.offset(w.at), "%s", w.message)
	}
	return e, len(e.wrong) == 0
}

// parsed reads a string by a function whose error completes the sentence that the string begins. The message shows the file's text, not values from
// the environment. A string that still holds an unset variable can't be judged.
func parsed[T any](r *reader, v value, want string, parse func(string) (T, error)) (t T, ok bool) {
	e, ok := r.text(v, want)
	if !ok || e.open {
		return t, false
	}
	t, err := parse(e.text)
	if err != nil {
		r.fault(v, "%s %q %v", v.name, v.raw, err)
		return t, false
	}
	return t, true
}

// within reads a duration within bounds.
func (r *reader) within(v value, least, most time.Duration) (time.Duration, bool) {
	return parsed(r, v, `a duration in a string, such as "90s" or "30d"`, func(s string) (time.Duration, error) {
		d, err := ParseDuration(s)
		switch {
		case err == nil && d < least:
			err = fmt.Errorf("is too short; %v is the least", least)
		case err == nil && d > most:
			err = fmt.Errorf("is too long; %v is the most", most)
		}
		return d, err
	})
}

// size reads a number of bytes of at most the given one; 0 is no limit.
func (r *reader) size(v value, most int64) (int64, bool) {
	return parsed(r, v, `a size in a string, such as "16KiB" or "64MiB"`, func(s string) (int64, error) {
		n, err := parseSize(s)
		if err == nil && most > 0 && n > most {
			err = fmt.Errorf("is too large; %dMiB is the most", most>>20)
		}
		return n, err
	})
}

// integer reads a whole number within bounds.
func (r *reader) integer(v value, least, most int64) (int, bool) {
	n, ok := v.raw.(int64)
	switch {
	case !ok:
		r.mistyped(v, "a whole number")
	case n < least || n > most:
		r.fault(v, "%q must be from %d to %d", v.name, least, most)
		return 0, false
	}
	return int(n), ok
}

func (r *reader) boolean(v value) (b, ok bool) {
	if b, ok = v.raw.(bool); !ok {
		r.mistyped(v, "true or false")
	}
	return b, ok
}

// choice reads one of the words that are supported.
func (r *reader) choice(v value, supported ...string) (string, bool) {
	quoted := make([]string, len(supported))
	for i, word := range supported {
		quoted[i] = strconv.Quote(word)
	}
	last := len(quoted) - 1
	words := strings.Join(quoted[:last], ", ") + " or " + quoted[last]
	e, ok := r.text(v, words)
	if !ok || e.open {
		return "", false
	}
	if !slices.Contains(supported, e.text) {
		r.fault(v, "%s %q is none of those known; write %s", v.name, v.raw, words)
		return "", false
	}
	return e.text, true
}

// either reads one of two words, and returns whether it is the second.
func (r *reader) either(v value, first, second string) (isSecond, ok bool) {
	word, ok := r.choice(v, first, second)
	return word == second, ok
}

// list reads the elements of a non-empty list with the given function.
func list[T any](r *reader, v value, want string, element func(value) (T, bool)) (all []T, ok bool) {
	if _, isList := v.raw.([]any); !isList {
		r.mistyped(v, want)
		return nil, false
	}
	ok = true
	for _, item := range v.items() {
		one, fine := element(item)
		ok = ok && fine
		all = append(all, one)
	}
	if len(all) == 0 {
		r.fault(v, "%q is empty; write %s", v.name, want)
		return nil, false
	}
	return all, ok
}

// words reads a non-empty list of non-empty strings.
func (r *reader) words(v value) ([]string, bool) {
	const want = "a list of strings"
	return list(r, v, want, func(item value) (string, bool) { return r.word(item, want) })
}

// word reads a non-empty string.
func (r *reader) word(v value, want string) (string, bool) {
	e, ok := r.text(v, want)
	if ok && e.text == "" {
		r.fault(v, "%q must not be empty", v.name)
		return "", false
	}
	return e.text, ok
}
