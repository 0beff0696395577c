package schema

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/units"
)

// Section describes one kind of table: the keys of the table, with functions that read their values into a T.
type Section[T any] struct {
	Keys []Key[T]
	// Once means that each key may be set only once in the whole configuration.
	Once bool
}

func (s Section[T]) findKey(name string) *Key[T] {
	for i := range s.Keys {
		if s.Keys[i].Name == name {
			return &s.Keys[i]
		}
	}
	return nil
}

// Names returns the names of all keys.
func (s Section[T]) Names() (names []string) {
	for i := range s.Keys {
		names = append(names, s.Keys[i].Name)
	}
	return names
}

// Entry is a key with its effective value, which is nil if the key has neither a value nor a default. A key of an inner table is "table.key".
type Entry struct {
	Key, Kind string
	Value     any
}

// Entries returns all keys of the section with their values in a T, in the order of the section.
func (s Section[T]) Entries(of *T) []Entry {
	all := make([]Entry, 0, 2*len(s.Keys))
	for _, k := range s.Keys {
		if k.Inner == nil {
			all = append(all, Entry{k.Name, k.Kind, k.inForce(of)})
			continue
		}
		for _, e := range k.Inner(of) {
			e.Key = k.Name + "." + e.Key
			all = append(all, e)
		}
	}
	return all
}

// Read reads a table into a T. It reads the keys in alphabetical order.
func (s Section[T]) Read(r *Reader, v document.Value, into *T) {
	table, ok := v.Raw.(map[string]any)
	if !ok {
		r.Mistyped(v, "a table")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		key, _ := v.Get(name)
		known := s.findKey(name)
		switch {
		case known != nil && (!s.Once || r.First(key, "key")):
			known.Read(r, key, into)
		case known != nil:
		default:
			r.reportUnknown(key, v, s.Names())
		}
	}
}

// reportUnknown reports an unknown key. It suggests a similar known key, or names the table in which the key is known.
func (r *Reader) reportUnknown(key, table document.Value, known []string) {
	if r.Skip() {
		return
	}
	message := fmt.Sprintf("unknown key %q in [%s]", key.Name, table.Path)
	if table.Path == "" {
		message = "unknown " + keyTitle(key, table)
	}
	near := r.names.Synonyms[key.Name]
	if !slices.Contains(known, near) {
		near = Nearest(key.Name, known)
	}
	r.meant[table.Path+"."+near] = true
	switch home := r.names.Home(key.Name, table.Path); {
	case home != "":
		message += "; it belongs " + home
	case near == "":
	case table.Path == "" && key.IsTable():
		message += fmt.Sprintf("; did you mean [%s]?", near)
	default:
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	r.Fault(key.AtKey(), "%s", message)
}

func keyTitle(key, table document.Value) string {
	switch {
	case table.Path != "":
		return fmt.Sprintf("%q in [%s]", key.Name, table.Path)
	case key.IsTable():
		return fmt.Sprintf("table [%s]", key.Name)
	}
	return fmt.Sprintf("key %q at the top level", key.Name)
}

// Key is one key of a section. All fields except Name and Read serve the reference in docs/configuration.md and the display of a job's effective settings.
type Key[T any] struct {
	Name string
	Read func(*Reader, document.Value, *T)
	// Kind is the type of the values. Allowed describes the permitted values, or is "".
	Kind, Allowed string
	// Default returns the default as a TOML value or a [Prose]. Its argument is the T of an empty file. Default is nil for a key without a default.
	Default func(*T) any
	// Value returns the value of the key in a T, in the form of Default. It returns nil if the key is not set. The key of an inner table has Inner instead, which
	// returns the entries of the inner table.
	Value func(*T) any
	Inner func(*T) []Entry
	// Doc describes the key in a sentence or two.
	Doc string
}

// Prose is a description of a default that is not a single TOML value.
type Prose string

// Bytes is a size in bytes.
type Bytes int64

// The kinds of values, for Key.Kind.
const (
	KindDuration = "duration"
	KindSize     = "size"
	KindInteger  = "integer"
	KindBool     = "boolean"
	KindString   = "string"
	KindStrings  = "list of strings"
	KindTable    = "table"
	KindPath     = "path"
)

// Field returns a key that reads a value with read and stores it in a field.
func Field[T, F any](name, kind string, field func(*T) *F, read func(*Reader, document.Value) (F, bool), doc string) Key[T] {
	return Key[T]{Name: name, Kind: kind, Doc: doc, Value: unlessZero(func(of *T) any { return *field(of) }), Read: func(r *Reader, v document.Value, to *T) {
		if value, ok := read(r, v); ok {
			*field(to) = value
		}
	}}
}

func unlessZero[T any](value func(*T) any) func(*T) any {
	return func(of *T) any {
		if v := value(of); v != nil && !reflect.ValueOf(v).IsZero() {
			return v
		}
		return nil
	}
}

// Table returns a key for an inner table.
func Table[T, F any](name string, field func(*T) *F, section Section[F], doc string) Key[T] {
	return Key[T]{Name: name, Kind: KindTable, Doc: doc, Read: func(r *Reader, v document.Value, to *T) { section.Read(r, v, field(to)) },
		Inner: func(of *T) []Entry { return section.Entries(field(of)) }}
}

// Bool returns a key for a boolean.
func Bool[T any](name string, field func(*T) *bool, doc string) Key[T] {
	return Field(name, KindBool, field, (*Reader).Boolean, doc).DefaultOf(func(of *T) any { return *field(of) })
}

// String returns a key for a non-empty string.
func String[T any](name string, field func(*T) *string, doc string) Key[T] {
	return Field(name, KindString, field, func(r *Reader, v document.Value) (string, bool) { return r.Word(v, "a string") }, doc)
}

// Strings returns a key for a list of non-empty strings.
func Strings[T any](name string, field func(*T) *[]string, doc string) Key[T] {
	return Field(name, KindStrings, field, (*Reader).Words, doc)
}

// Path returns a key for the path of a file or folder.
func Path[T any](name string, field func(*T) *string, doc string) Key[T] {
	return Field(name, KindPath, field, (*Reader).Path, doc)
}

// Integer returns a key for a whole number from least to most.
func Integer[T any](name string, least, most int64, field func(*T) *int, doc string) Key[T] {
	read := func(r *Reader, v document.Value) (int, bool) { return r.Integer(v, least, most) }
	return Field(name, KindInteger, field, read, doc).Allow(fmt.Sprintf("%d to %d", least, most)).DefaultOf(func(of *T) any { return *field(of) })
}

// AnyLength is the upper bound of a duration that is not limited.
const AnyLength = math.MaxInt64

// Duration returns a key for a duration from least to most.
func Duration[T any](name string, least, most time.Duration, field func(*T) *time.Duration, doc string) Key[T] {
	allowed := units.FormatDuration(least) + " to " + units.FormatDuration(most)
	if most == AnyLength {
		allowed = units.FormatDuration(least) + " or more"
	}
	read := func(r *Reader, v document.Value) (time.Duration, bool) { return r.Within(v, least, most) }
	return Field(name, KindDuration, field, read, doc).Allow(allowed).DefaultOf(func(of *T) any { return *field(of) })
}

// Limit returns a key for a duration longer than zero. A word, such as "none", stands for 0.
func Limit[T any](name, word string, field func(*T) *time.Duration, doc string) Key[T] {
	read := func(r *Reader, v document.Value) (time.Duration, bool) { return r.Limit(v, word) }
	return Field(name, KindDuration, field, read, doc).Allow("longer than 0s, or `" + strconv.Quote(word) + "`").DefaultOf(func(of *T) any {
		if *field(of) == 0 {
			return word
		}
		return *field(of)
	})
}

// Size returns a key for a number of bytes up to most. If most is 0, there is no limit.
func Size[T any](name string, most int64, field func(*T) *int64, doc string) Key[T] {
	allowed := ""
	if most > 0 {
		allowed = "up to " + units.FormatSize(most)
	}
	read := func(r *Reader, v document.Value) (int64, bool) { return r.Size(v, most) }
	return Field(name, KindSize, field, read, doc).Allow(allowed).DefaultOf(func(of *T) any { return Bytes(*field(of)) })
}

// Word returns a key for one of several words. The first word is the default.
func Word[T any](name string, field func(*T) *string, doc string, words ...string) Key[T] {
	read := func(r *Reader, v document.Value) (string, bool) { return r.Choice(v, words...) }
	allowed := "`\"" + strings.Join(words, "\"`, `\"") + "\"`"
	return Field(name, KindString, field, read, doc).Allow(allowed).DefaultOf(func(of *T) any { return cmp.Or(*field(of), words[0]) })
}

// Allow sets Allowed, the description of the permitted values.
func (k Key[T]) Allow(allowed string) Key[T] {
	k.Allowed = allowed
	return k
}

// DefaultOf sets the function that returns the default. It also sets Value to this function.
func (k Key[T]) DefaultOf(of func(*T) any) Key[T] {
	k.Default, k.Value = of, of
	return k
}

// By sets a default that is described in words.
func (k Key[T]) By(p Prose) Key[T] {
	k.Default, k.Value = func(*T) any { return p }, unlessZero(k.Value)
	return k
}

// ValueOf sets the function that returns the key's value in a T.
func (k Key[T]) ValueOf(of func(*T) any) Key[T] {
	k.Value = of
	return k
}

// Optional removes the default. The key then has a value only if a file sets it.
func (k Key[T]) Optional() Key[T] {
	k.Default, k.Value = nil, unlessZero(k.Value)
	return k
}

func (k Key[T]) inForce(of *T) any {
	v := k.Value(of)
	if v == nil && k.Default != nil {
		return k.Default(of)
	}
	return v
}
