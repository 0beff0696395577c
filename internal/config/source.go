package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"github.com/cronclave/cronclave/internal/safefile"
)

// maxTwins bounds how many things that one file defines twice are reported.
const maxTwins = 100

// source is one file of the configuration.
type source struct {
	name   string
	text   string
	lines  []int // where each line begins
	chars  []int // how many characters are before each stride of the text
	tree   map[string]any
	places *place
	again  []twin // second definitions, which were not read
}

// readSource reads a file. Its error has no file name in it, unless it says whom the file is from.
func (r *reader) readSource(name string) (*source, error) {
	text, err := safefile.Read(context.Background(), name, safefile.Policy{MaxBytes: maxFileBytes, Trust: r.options.Trust})
	if err == nil {
		err = r.bounds.take(len(text))
	}
	if err != nil {
		return nil, bare(err)
	}
	return newSource(name, string(text)), nil
}

// bare takes the operation and the file's name off an error, since a fault has the file in a field.
func bare(err error) error {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

func newSource(name, text string) *source {
	s := &source{name: name, text: strings.TrimPrefix(text, "\ufeff"), lines: []int{0}}
	chars := 0
	for i := range len(s.text) {
		if i%stride == 0 {
			s.chars = append(s.chars, chars)
		}
		if utf8.RuneStart(s.text[i]) {
			chars++
		}
		if s.text[i] == '\n' {
			s.lines = append(s.lines, i+1)
		}
	}
	return s
}

// stride is how much of a line is gone over for a column: all of a long one would be too much for each of many places.
const stride = 1 << 10

// charsBefore is how many characters begin before a byte of the text.
func (s *source) charsBefore(at int) int {
	if len(s.chars) == 0 {
		return 0
	}
	from := min(at/stride, len(s.chars)-1)
	n := s.chars[from]
	for i := from * stride; i < at; i++ {
		if utf8.RuneStart(s.text[i]) {
			n++
		}
	}
	return n
}

// position returns the line and the column (in characters) of a byte of the text, both from 1.
func (s *source) position(at int) (line, column int) {
	at = min(max(at, 0), len(s.text))
	line, found := slices.BinarySearch(s.lines, at)
	if !found {
		line-- // the line that begins before
	}
	return line + 1, s.charsBefore(at) - s.charsBefore(s.lines[line]) + 1
}

func (s *source) fault(at int, format string, args ...any) Fault {
	line, column := s.position(at)
	return Fault{File: s.name, Line: line, Column: column, Message: fmt.Sprintf(format, args...)}
}

// parse reads the text as TOML. Each second definition is reported, blanked out and the rest read on: a job that is there twice
// hides no other fault. The library stops at its first fault.
func (s *source) parse(b *bounds) (faults Faults) {
	if at := undecodable(s.text); at >= 0 {
		return Faults{s.fault(at, "not TOML: the text is not UTF-8")}
	}
	places, twins, excess := scan(s.text, b)
	if excess != nil {
		return Faults{s.fault(excess.at, "%s; a configuration has no use for that", excess.message)}
	}
	tree, err := decode(blankOut(s.text, twins))
	end := len(s.text)
	if err != nil {
		end = s.faultyAt(err)
		faults = Faults{s.syntax(err)}
	}
	for i, t := range twins {
		if i < maxTwins && t.from < end { // beyond that it is no TOML
			faults = append(faults, s.twice(t))
		}
	}
	if err == nil {
		s.tree, s.places, s.again = tree, places, twins
	}
	return faults
}

// undecodable returns where the text is not UTF-8, else -1. The library would let marks of other encodings pass at the
// start, and drop them.
func undecodable(text string) int {
	for at := 0; at < len(text); {
		r, n := utf8.DecodeRuneInString(text[at:])
		if r == utf8.RuneError && n == 1 || r == '\ufeff' && at == 0 {
			return at
		}
		at += n
	}
	return -1
}

// decode is the library's reading. It panics on what it takes for a mistake of its own; that is a fault here.
func decode(text string) (tree map[string]any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("cannot be read as TOML: %v", r)
		}
	}()
	_, err = toml.Decode(text, &tree)
	return tree, err
}

func (s *source) twice(t twin) Fault {
	line, column := s.position(t.first)
	before := fmt.Sprintf("%s:%d:%d", s.name, line, column)
	return s.fault(t.key, "%s", alreadyDefined(t.kind, t.name, before))
}

// alreadyDefined is the message for a job, table or key that is there twice; it names the place of the first.
func alreadyDefined(kind, name, before string) string {
	switch kind {
	case "job", "pool", "calendar":
		return fmt.Sprintf("%s %q is already defined at %s; give one of them another name", kind, name, before)
	case "table":
		return fmt.Sprintf("table %q is already defined at %s; join the two", name, before)
	}
	return fmt.Sprintf("%q is already set at %s; remove one of them", name, before)
}

// syntax turns the library's error into a fault.
func (s *source) syntax(err error) Fault {
	var syntax toml.ParseError
	if !errors.As(err, &syntax) {
		return s.fault(0, "%s", oneLine(err.Error()))
	}
	return s.fault(s.faultyAt(err), "not TOML: %s", oneLine(syntax.Message))
}

// faultyAt is the byte that the library's error is about; 0 where it does not say.
func (s *source) faultyAt(err error) int {
	var syntax toml.ParseError
	if !errors.As(err, &syntax) {
		return 0
	}
	at := syntax.Position.Start
	if line, _ := s.position(at); line != syntax.Position.Line {
		at = s.lines[min(max(syntax.Position.Line, 1), len(s.lines))-1]
	}
	return at
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// blankOut replaces parts of the text by blanks, so that everything else stays where it is. In an inline table the comma
// behind a part goes with it.
func blankOut(text string, twins []twin) string {
	if len(twins) == 0 {
		return text
	}
	blank := []byte(text)
	for _, t := range twins {
		upTo := t.upTo
		if rest := strings.TrimLeft(text[upTo:], " \t"); strings.HasPrefix(rest, ",") {
			upTo = len(text) - len(rest) + 1
		}
		for i := t.from; i < upTo; i++ {
			if blank[i] != '\n' {
				blank[i] = ' '
			}
		}
	}
	return string(blank)
}
