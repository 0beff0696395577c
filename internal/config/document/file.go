// Package document turns the text of configuration files into values, each with its place. It knows of no key.
//
// The TOML library decodes the text and keeps no positions, so a small scanner finds where in the text each key and value stands, and second definitions.
package document

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// File is one file of a configuration.
type File struct {
	name   string
	text   text
	tree   map[string]any // nil where the text is no TOML
	places *place
	twins  []twin // second definitions, which were not read
}

// New returns a file with a text, which is yet to be parsed. Its line ends become LF, as TOML allows: a shell takes the CR of a file from Windows, in a command
// of several lines, for a part of the last word.
func New(name, content string) *File {
	return &File{name: name, text: newText(strings.ReplaceAll(content, "\r\n", "\n"))}
}

// Name is the file's name as it was reached.
func (f *File) Name() string { return f.name }

// Root is the top level; ok is false where the text is no TOML.
func (f *File) Root() (root Value, ok bool) {
	return Value{src: f, at: f.places, Raw: f.tree}, f.tree != nil
}

// Parse reads the text as TOML. Each second definition is reported, blanked out and the rest read on: a job that is there twice
// hides no other fault. The library stops at its first fault.
func (f *File) Parse(b *Bounds) (faults Faults) {
	if at := f.text.undecodable(); at >= 0 {
		return Faults{f.fault(at, "not TOML: the text is not UTF-8")}
	}
	places, twins, excess := scan(f.text.string, b)
	if excess != nil {
		return Faults{f.fault(excess.at, "%s; a configuration has no use for that", excess.message)}
	}
	tree, err := decode(f.text.without(twins))
	end := len(f.text.string)
	if err != nil {
		end = f.faultyAt(err)
		faults = Faults{f.syntax(err)}
	}
	for _, t := range twins[:min(len(twins), maxTwins)] {
		if t.from < end { // beyond that it is no TOML
			faults = append(faults, f.fault(t.key, "%s", AlreadyDefined(t.kind, t.name, f.place(t.first))))
		}
	}
	if err == nil {
		f.tree, f.places, f.twins = tree, places, twins
	}
	return faults
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

// AlreadyDefined is the message for a job, table or key that is there twice; it names the place of the first.
func AlreadyDefined(kind, name, before string) string {
	switch kind {
	case "job", "pool", "calendar":
		return fmt.Sprintf("%s %q is already defined at %s; give one of them another name", kind, name, before)
	case "table":
		return fmt.Sprintf("table %q is already defined at %s; join the two", name, before)
	}
	return fmt.Sprintf("%q is already set at %s; remove one of them", name, before)
}

func (f *File) fault(at int, format string, args ...any) Fault {
	line, column := f.text.position(at)
	return Fault{File: f.name, Line: line, Column: column, Message: fmt.Sprintf(format, args...)}
}

// place is FILE:LINE:COL.
func (f *File) place(at int) string { return f.fault(at, "").Place() }

// syntax turns the library's error into a fault.
func (f *File) syntax(err error) Fault {
	var syntax toml.ParseError
	if !errors.As(err, &syntax) {
		return f.fault(0, "%s", OneLine(err.Error()))
	}
	return f.fault(f.faultyAt(err), "not TOML: %s", OneLine(syntax.Message))
}

// faultyAt is the byte that the library's error is about; 0 where it does not say.
func (f *File) faultyAt(err error) int {
	var syntax toml.ParseError
	if !errors.As(err, &syntax) {
		return 0
	}
	at := syntax.Position.Start
	if line, _ := f.text.position(at); line != syntax.Position.Line {
		at = f.text.lines[min(max(syntax.Position.Line, 1), len(f.text.lines))-1]
	}
	return at
}

// OneLine is a text with each row of blanks and line ends replaced by one blank.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Repeats returns whether the file defines one of these keys or tables a second time: which of the two is meant is not known.
func (f *File) Repeats(names ...string) bool {
	return slices.ContainsFunc(f.twins, func(t twin) bool { return slices.Contains(names, t.name) })
}

// Repeated is how many second definitions were reported of a file that is TOML.
func (f *File) Repeated() int { return min(len(f.twins), maxTwins) }

// Unread returns whether a word is in text that was not read: all of a file that is no TOML, and second definitions.
func (f *File) Unread(word string) bool {
	if f.tree == nil {
		return strings.Contains(f.text.string, word)
	}
	return slices.ContainsFunc(f.twins, func(t twin) bool { return strings.Contains(f.text.string[t.from:t.upTo], word) })
}
