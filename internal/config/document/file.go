// Package document parses the text of configuration files into values with their positions. It is independent of the keys of a configuration.
//
// The TOML library decodes the text but reports no positions. So a small scanner finds the positions of keys and values, and duplicate definitions.
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
	tree   map[string]any // nil if the text is not TOML
	places *place
	twins  []twin // duplicate definitions, which are ignored
}

// New returns a file with the given text. The text is not parsed yet. New replaces CRLF by LF, as TOML permits, because a shell would take a CR from a
// Windows file for a part of the last word of a line.
func New(name, content string) *File {
	return &File{name: name, text: newText(strings.ReplaceAll(content, "\r\n", "\n"))}
}

// Name returns the path by which the file was found.
func (f *File) Name() string { return f.name }

// Root returns the top level. ok is false if the text is not TOML.
func (f *File) Root() (root Value, ok bool) {
	return Value{src: f, at: f.places, Raw: f.tree}, f.tree != nil
}

// Parse parses the text as TOML. It reports each duplicate definition and ignores it. The TOML library alone would stop at its first error, so a job that is
// defined twice would hide all other faults.
func (f *File) Parse(b *Bounds) (faults Faults) {
	if at := f.text.invalidUTF8(); at >= 0 {
		return Faults{f.newFault(at, "not TOML: the text is not UTF-8")}
	}
	places, twins, excess := scanText(f.text.string, b)
	if excess != nil {
		return Faults{f.newFault(excess.at, "%s; a configuration has no use for that", excess.message)}
	}
	tree, err := decodeTOML(f.text.withoutTwins(twins))
	end := len(f.text.string)
	if err != nil {
		end = f.faultyAt(err)
		faults = Faults{f.syntaxFault(err)}
	}
	for _, t := range twins[:min(len(twins), maxTwins)] {
		if t.from < end { // after the error of the library, the text may not be TOML
			faults = append(faults, f.newFault(t.key, "%s", AlreadyDefined(t.kind, t.name, f.placeAt(t.first))))
		}
	}
	if err == nil {
		f.tree, f.places, f.twins = tree, places, twins
	}
	return faults
}

// decodeTOML calls the TOML library and turns panics into errors. The library panics if it detects a bug of its own.
func decodeTOML(text string) (tree map[string]any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("cannot be read as TOML: %v", r)
		}
	}()
	_, err = toml.Decode(text, &tree)
	return tree, err
}

// AlreadyDefined returns the message about a duplicate definition of a job, table or key. before is the place of the first definition.
func AlreadyDefined(kind, name, before string) string {
	switch kind {
	case "job", "pool", "calendar":
		return fmt.Sprintf("%s %q is already defined at %s; give one of them another name", kind, name, before)
	case "table":
		return fmt.Sprintf("table %q is already defined at %s; join the two", name, before)
	}
	return fmt.Sprintf("%q is already set at %s; remove one of them", name, before)
}

func (f *File) newFault(at int, format string, args ...any) Fault {
	line, column := f.text.lineAndColumn(at)
	return Fault{File: f.name, Line: line, Column: column, Message: fmt.Sprintf(format, args...)}
}

// placeAt returns FILE:LINE:COL.
func (f *File) placeAt(at int) string { return f.newFault(at, "").Place() }

// syntaxFault converts an error of the TOML library to a fault.
func (f *File) syntaxFault(err error) Fault {
	var syntax toml.ParseError
	if !errors.As(err, &syntax) {
		return f.newFault(0, "%s", OneLine(err.Error()))
	}
	return f.newFault(f.faultyAt(err), "not TOML: %s", OneLine(syntax.Message))
}

// faultyAt returns the byte offset of an error of the TOML library, or 0 if it is unknown.
func (f *File) faultyAt(err error) int {
	var syntax toml.ParseError
	if !errors.As(err, &syntax) {
		return 0
	}
	at := syntax.Position.Start
	if line, _ := f.text.lineAndColumn(at); line != syntax.Position.Line {
		at = f.text.lines[min(max(syntax.Position.Line, 1), len(f.text.lines))-1]
	}
	return at
}

// OneLine replaces each sequence of blanks and line ends by one blank.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Repeats reports whether the file defines one of these keys or tables twice, so that the user's intention is unknown.
func (f *File) Repeats(names ...string) bool {
	return slices.ContainsFunc(f.twins, func(t twin) bool { return slices.Contains(names, t.name) })
}

// Repeated returns the number of duplicate definitions that were reported. It is 0 if the file is not TOML.
func (f *File) Repeated() int { return min(len(f.twins), maxTwins) }

// Unread reports whether text that was ignored contains a word. Ignored text is a file that is not TOML, or a duplicate definition.
func (f *File) Unread(word string) bool {
	if f.tree == nil {
		return strings.Contains(f.text.string, word)
	}
	return slices.ContainsFunc(f.twins, func(t twin) bool { return strings.Contains(f.text.string[t.from:t.upTo], word) })
}
