package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// maxFileBytes bounds what one file may hold; 16 MiB are some 100,000 jobs.
const maxFileBytes = 16 << 20

// maxTwins bounds how many things that one file defines twice are told.
const maxTwins = 100

// source is one file of the configuration.
type source struct {
	name   string
	text   string
	lines  []int // where each line begins
	tree   map[string]any
	places *place
}

// readSource reads a file. Its error has no file name in it.
func readSource(name string) (*source, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, bare(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, bare(err)
	}
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("larger than %d MiB", maxFileBytes>>20)
	}
	return newSource(name, string(text)), nil
}

// bare takes the operation and the file's name off an error, since a fault tells the file by itself.
func bare(err error) error {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

func newSource(name, text string) *source {
	s := &source{name: name, text: strings.TrimPrefix(text, "\ufeff"), lines: []int{0}}
	for i := range len(s.text) {
		if s.text[i] == '\n' {
			s.lines = append(s.lines, i+1)
		}
	}
	return s
}

// position returns the line and the column (in characters) of a byte of the text, both from 1.
func (s *source) position(at int) (line, column int) {
	at = min(max(at, 0), len(s.text))
	line, found := slices.BinarySearch(s.lines, at)
	if !found {
		line-- // the line that begins before
	}
	return line + 1, utf8.RuneCountInString(s.text[s.lines[line]:at]) + 1
}

func (s *source) fault(at int, format string, args ...any) Fault {
	line, column := s.position(at)
	return Fault{File: s.name, Line: line, Column: column, Message: fmt.Sprintf(format, args...)}
}

// parse reads the text as TOML. The library stops at the first fault. Where that is something defined a second time,
// the second definition is told, blanked out and the rest read on: a job that is there twice hides no other fault.
func (s *source) parse() (faults Faults) {
	text := s.text
	if at := undecodable(text); at >= 0 {
		return Faults{s.fault(at, "not TOML: the text is not UTF-8")}
	}
	for {
		tree, err := decode(text)
		places, twins := scan(text)
		if err == nil {
			s.tree, s.places = tree, places
			return faults
		}
		again := s.defined(err, twins)
		if again == nil || len(faults) == maxTwins {
			return append(faults, s.syntax(err))
		}
		faults = append(faults, s.twice(*again))
		text = blankOut(text, again.from, again.upTo)
	}
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

// defined returns the second definition that the library's error complains of, if that is what the error is.
func (s *source) defined(err error, twins []twin) *twin {
	var syntax toml.ParseError
	if !errors.As(err, &syntax) || len(twins) == 0 {
		return nil
	}
	t := slices.MinFunc(twins, func(a, b twin) int { return a.from - b.from })
	first, _ := s.position(t.from)
	last, _ := s.position(t.upTo)
	if line := syntax.Position.Line; line < first || line > last {
		return nil
	}
	return &t
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
	at := syntax.Position.Start
	if line, _ := s.position(at); line != syntax.Position.Line {
		at = s.lines[min(max(syntax.Position.Line, 1), len(s.lines))-1]
	}
	return s.fault(at, "not TOML: %s", oneLine(syntax.Message))
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// blankOut replaces a part of the text by blanks, so that everything else stays where it is. In an inline table the
// comma behind goes with it.
func blankOut(text string, from, upTo int) string {
	if rest := strings.TrimLeft(text[upTo:], " \t"); strings.HasPrefix(rest, ",") {
		upTo = len(text) - len(rest) + 1
	}
	blank := strings.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return ' '
	}, text[from:upTo])
	blank += strings.Repeat(" ", upTo-from-len(blank)) // a character of several bytes has become one blank
	return text[:from] + blank + text[upTo:]
}
