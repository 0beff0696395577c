package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
)

// section is a kind of table: its keys, and the function that reads each of them into a T.
type section[T any] struct {
	keys []key[T]
	// later are the keys that are specified and do not work yet.
	later []string
	// once is set where each key may be given once in the whole configuration.
	once bool
}

// key is one key of a section. All but read is what the reference in docs/configuration.md says of it.
type key[T any] struct {
	name string
	read func(*reader, value, *T)
	// kind is the type of its values, allowed what they are bounded to; "" for no bound.
	kind, allowed string
	// standard is the default, as the T of an empty file has it: a value of TOML, or a [prose]. nil is for none.
	standard func(*T) any
	// doc is the meaning, in one sentence.
	doc string
}

// prose is a default that no value of TOML can say.
type prose string

// bytes is a size.
type bytes int64

// The kinds of values that several keys have.
const (
	kindDuration = "duration"
	kindSize     = "size"
	kindInteger  = "integer"
	kindBool     = "boolean"
	kindString   = "string"
	kindStrings  = "list of strings"
	kindTable    = "table"
	kindPath     = "path"
)

// says is a default that stands in no field of T.
func says[T any](v any) func(*T) any {
	return func(*T) any { return v }
}

func boolKey[T any](name string, field func(*T) *bool, doc string) key[T] {
	return key[T]{name: name, kind: kindBool, doc: doc,
		read:     func(r *reader, v value, to *T) { assign(field(to))(r.boolean(v)) },
		standard: func(of *T) any { return *field(of) }}
}

// stringKey is of a string that is not empty.
func stringKey[T any](name string, field func(*T) *string, doc string) key[T] {
	return key[T]{name: name, kind: kindString, doc: doc,
		read: func(r *reader, v value, to *T) { assign(field(to))(r.word(v, "a string")) }}
}

func integerKey[T any](name string, least, most int64, field func(*T) *int, doc string) key[T] {
	return key[T]{name: name, kind: kindInteger, allowed: fmt.Sprintf("%d to %d", least, most), doc: doc,
		read:     func(r *reader, v value, to *T) { assign(field(to))(r.integer(v, least, most)) },
		standard: func(of *T) any { return *field(of) }}
}

// anyLength is for durations without an upper bound.
const anyLength = math.MaxInt64

func durationKey[T any](name string, least, most time.Duration, field func(*T) *time.Duration, doc string) key[T] {
	allowed := fmt.Sprintf("%s to %s", shortly(least), shortly(most))
	if most == anyLength {
		allowed = shortly(least) + " or more"
	}
	return key[T]{name: name, kind: kindDuration, allowed: allowed, doc: doc,
		read:     func(r *reader, v value, to *T) { assign(field(to))(r.within(v, least, most)) },
		standard: func(of *T) any { return *field(of) }}
}

// limitKey is of a duration longer than zero, or a word that stands for 0.
func limitKey[T any](name, word string, field func(*T) *time.Duration, doc string) key[T] {
	return key[T]{name: name, kind: kindDuration, allowed: "longer than 0s, or `" + strconv.Quote(word) + "`", doc: doc,
		read: func(r *reader, v value, to *T) { assign(field(to))(r.limit(v, word)) },
		standard: func(of *T) any {
			if *field(of) == 0 {
				return word
			}
			return *field(of)
		}}
}

// by has a default that no value of TOML can say.
func (k key[T]) by(standard prose) key[T] {
	k.standard = says[T](standard)
	return k
}

// optional has no default: the key is not set unless a file sets it.
func (k key[T]) optional() key[T] {
	k.standard = nil
	return k
}

// find returns the key of a name, nil if the section has none.
func (s section[T]) find(name string) *key[T] {
	for i := range s.keys {
		if s.keys[i].name == name {
			return &s.keys[i]
		}
	}
	return nil
}

func (s section[T]) names() []string {
	names := make([]string, len(s.keys))
	for i := range s.keys {
		names[i] = s.keys[i].name
	}
	return names
}

// read reads a table by its section. Keys are read in the order of their names.
func read[T any](r *reader, v value, s section[T], into *T) {
	table, ok := v.raw.(map[string]any)
	if !ok {
		r.mistyped(v, "a table")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		key, _ := v.get(name)
		known := s.find(name)
		switch {
		case known != nil && (!s.once || r.first(key, "key")):
			known.read(r, key, into)
		case known != nil:
		case slices.Contains(s.later, name):
			r.faultAt(key, key.at.key, "%s is not supported yet; remove it", key.title(v))
		default:
			r.unknown(key, v, s.names(), s.later)
		}
	}
}

// first notes where a setting or a job is, and reports a fault if another file has it already.
func (r *reader) first(v value, kind string) bool {
	before, again := r.set[v.path]
	if again {
		r.faultAt(v, v.at.key, "%s", alreadyDefined(kind, v.name, before.where()))
		return false
	}
	r.set[v.path] = v
	return true
}

// unknown reports an unknown key, and the known one that may be meant.
func (r *reader) unknown(key, table value, keys, later []string) {
	if r.full() {
		r.count.faults++
		return
	}
	message := "unknown key " + fmt.Sprintf("%q in [%s]", key.name, table.path)
	if table.path == "" {
		message = "unknown " + key.title(table)
	}
	near := nearest(key.name, slices.Concat(keys, later))
	r.meant[table.path+"."+near] = true
	switch home := belongs(key.name, table.path); {
	case home != "":
		message += "; it belongs " + home
	case near == "":
	case slices.Contains(later, near):
		message += fmt.Sprintf("; did you mean %q (which is not supported yet)?", near)
	case table.path == "" && key.isTable():
		message += fmt.Sprintf("; did you mean [%s]?", near)
	default:
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	r.faultAt(key, key.at.key, "%s", message)
}

func (v value) isTable() bool { return v.kind() == "a table" }

// title names a key together with the table that it is in.
func (v value) title(table value) string {
	switch {
	case table.path != "":
		return fmt.Sprintf("%q in [%s]", v.name, table.path)
	case v.isTable():
		return fmt.Sprintf("table [%s]", v.name)
	}
	return fmt.Sprintf("key %q at the top level", v.name)
}

// belongs returns the table in which a key is known that is unknown in another. A line behind a table's header belongs to that table, which is easily
// forgotten.
func belongs(key, table string) string {
	switch {
	case table != "" && topKeys().has(key):
		return "at the top level, above the first [table]"
	case jobKeys().has(key):
		return "in [jobs.NAME] or [defaults]"
	case redisKeys().has(key):
		return "in [redis]"
	case replicaKeys().has(key):
		return "in [replica]"
	case historyKeys().has(key):
		return "in [history]"
	case heartbeatKeys().has(key):
		return "in [heartbeat]"
	case poolKeys().has(key):
		return "in [pools.NAME]"
	case calendarKeys().has(key):
		return "in [calendars.NAME]"
	}
	return ""
}

func (s section[T]) has(key string) bool {
	return s.find(key) != nil || slices.Contains(s.later, key)
}
