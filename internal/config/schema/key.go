package schema

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/units"
)

// Key is one key of a section. All but Read is what the reference in docs/configuration.md says of it.
type Key[T any] struct {
	Name string
	Read func(*Reader, document.Value, *T)
	// Kind is the type of its values, Allowed what they are bounded to; "" for no bound.
	Kind, Allowed string
	// Default is the default, as the T of an empty file has it: a value of TOML, or a [Prose]. nil is for none.
	Default func(*T) any
	// Value returns the value that a T has, as Default has it; nil where it is not set. A key of a table has Inner in its place.
	Value func(*T) any
	Inner func(*T) []Entry
	// Doc is the meaning, in one sentence.
	Doc string
}

// Prose is a default that no value of TOML can say.
type Prose string

// Bytes is a size.
type Bytes int64

// The kinds of values that several keys have.
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

// Field returns a key whose values a function reads into a field.
func Field[T, F any](name, kind string, field func(*T) *F, read func(*Reader, document.Value) (F, bool), doc string) Key[T] {
	return Key[T]{Name: name, Kind: kind, Doc: doc, Value: unlessZero(func(of *T) any { return *field(of) }), Read: func(r *Reader, v document.Value, to *T) {
		if value, ok := read(r, v); ok {
			*field(to) = value
		}
	}}
}

// unlessZero returns nil in place of a zero value.
func unlessZero[T any](value func(*T) any) func(*T) any {
	return func(of *T) any {
		if v := value(of); v != nil && !reflect.ValueOf(v).IsZero() {
			return v
		}
		return nil
	}
}

// Table returns a key with a section of its own.
func Table[T, F any](name string, field func(*T) *F, section Section[F], doc string) Key[T] {
	return Key[T]{Name: name, Kind: KindTable, Doc: doc, Read: func(r *Reader, v document.Value, to *T) { section.Read(r, v, field(to)) },
		Inner: func(of *T) []Entry { return section.Entries(field(of)) }}
}

// Bool returns a key of a boolean.
func Bool[T any](name string, field func(*T) *bool, doc string) Key[T] {
	return Field(name, KindBool, field, (*Reader).Boolean, doc).DefaultOf(func(of *T) any { return *field(of) })
}

// String returns a key of a string that is not empty.
func String[T any](name string, field func(*T) *string, doc string) Key[T] {
	return Field(name, KindString, field, func(r *Reader, v document.Value) (string, bool) { return r.Word(v, "a string") }, doc)
}

// Strings returns a key of a list of strings that are not empty.
func Strings[T any](name string, field func(*T) *[]string, doc string) Key[T] {
	return Field(name, KindStrings, field, (*Reader).Words, doc)
}

// Path returns a key of the path of a file.
func Path[T any](name string, field func(*T) *string, doc string) Key[T] {
	return Field(name, KindPath, field, (*Reader).Path, doc)
}

// Integer returns a key of a whole number within bounds.
func Integer[T any](name string, least, most int64, field func(*T) *int, doc string) Key[T] {
	read := func(r *Reader, v document.Value) (int, bool) { return r.Integer(v, least, most) }
	return Field(name, KindInteger, field, read, doc).Allow(fmt.Sprintf("%d to %d", least, most)).DefaultOf(func(of *T) any { return *field(of) })
}

// AnyLength is for durations without an upper bound.
const AnyLength = math.MaxInt64

// Duration returns a key of a duration within bounds.
func Duration[T any](name string, least, most time.Duration, field func(*T) *time.Duration, doc string) Key[T] {
	allowed := units.FormatDuration(least) + " to " + units.FormatDuration(most)
	if most == AnyLength {
		allowed = units.FormatDuration(least) + " or more"
	}
	read := func(r *Reader, v document.Value) (time.Duration, bool) { return r.Within(v, least, most) }
	return Field(name, KindDuration, field, read, doc).Allow(allowed).DefaultOf(func(of *T) any { return *field(of) })
}

// Limit returns a key of a duration longer than zero, or a word that stands for 0.
func Limit[T any](name, word string, field func(*T) *time.Duration, doc string) Key[T] {
	read := func(r *Reader, v document.Value) (time.Duration, bool) { return r.Limit(v, word) }
	return Field(name, KindDuration, field, read, doc).Allow("longer than 0s, or `" + strconv.Quote(word) + "`").DefaultOf(func(of *T) any {
		if *field(of) == 0 {
			return word
		}
		return *field(of)
	})
}

// Size returns a key of a number of bytes of at most the given one; 0 is no limit.
func Size[T any](name string, most int64, field func(*T) *int64, doc string) Key[T] {
	allowed := ""
	if most > 0 {
		allowed = "up to " + units.FormatSize(most)
	}
	read := func(r *Reader, v document.Value) (int64, bool) { return r.Size(v, most) }
	return Field(name, KindSize, field, read, doc).Allow(allowed).DefaultOf(func(of *T) any { return Bytes(*field(of)) })
}

// Word returns a key of one of several words, the first of which is the default.
func Word[T any](name string, field func(*T) *string, doc string, words ...string) Key[T] {
	read := func(r *Reader, v document.Value) (string, bool) { return r.Choice(v, words...) }
	allowed := "`\"" + strings.Join(words, "\"`, `\"") + "\"`"
	return Field(name, KindString, field, read, doc).Allow(allowed).DefaultOf(func(of *T) any { return cmp.Or(*field(of), words[0]) })
}

// Allow sets what the values are bounded to.
func (k Key[T]) Allow(allowed string) Key[T] {
	k.Allowed = allowed
	return k
}

// DefaultOf sets the default. The function also returns the value of any other T.
func (k Key[T]) DefaultOf(of func(*T) any) Key[T] {
	k.Default, k.Value = of, of
	return k
}

// By sets a default that no value of TOML can say.
func (k Key[T]) By(p Prose) Key[T] {
	k.Default, k.Value = func(*T) any { return p }, unlessZero(k.Value)
	return k
}

// ValueOf sets where the value of a T is found.
func (k Key[T]) ValueOf(of func(*T) any) Key[T] {
	k.Value = of
	return k
}

// Optional takes the default away: the key is not set unless a file sets it.
func (k Key[T]) Optional() Key[T] {
	k.Default, k.Value = nil, unlessZero(k.Value)
	return k
}

// inForce is the value that a T has, or else the default.
func (k Key[T]) inForce(of *T) any {
	v := k.Value(of)
	if v == nil && k.Default != nil {
		return k.Default(of)
	}
	return v
}
