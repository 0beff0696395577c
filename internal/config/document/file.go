// Package document parses the text of configuration files into values with their positions. It is independent of the keys of a configuration.
//
// The TOML library decodes the text but reports no positions. So a small scanner finds the positions of keys and values, and duplicate definitions.
package document

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

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

// New returns a file with the given text. The text is not parsed yet. New replaces CRLF by LF, as TOML permits. Otherwise, in a script from a Windows file, a
// shell would read the CR as a part of the last word of each line.
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
		if t.from < end { // duplicates after a syntax error are not reported, because the scanner may have misread the text there
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

func (f *File) placeAt(at int) string { return f.newFault(at, "").Place() }

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

// text is the content of a file. It converts byte offsets to lines and columns.
type text struct {
	string
	lines []int // byte offset of the start of each line
	chars []int // number of characters before each block of stride bytes
}

// stride is the block size of text.chars in bytes. Without blocks, each lookup in a long line would count the characters of the whole line.
const stride = 1 << 10

func newText(s string) text {
	t := text{string: strings.TrimPrefix(s, "\ufeff"), lines: []int{0}}
	chars := 0
	for i := range len(t.string) {
		if i%stride == 0 {
			t.chars = append(t.chars, chars)
		}
		if utf8.RuneStart(t.string[i]) {
			chars++
		}
		if t.string[i] == '\n' {
			t.lines = append(t.lines, i+1)
		}
	}
	return t
}

func (t text) charsBefore(at int) int {
	if len(t.chars) == 0 {
		return 0
	}
	from := min(at/stride, len(t.chars)-1)
	n := t.chars[from]
	for i := from * stride; i < at; i++ {
		if utf8.RuneStart(t.string[i]) {
			n++
		}
	}
	return n
}

// lineAndColumn converts a byte offset to a line and a column. Both count from 1; columns count characters.
func (t text) lineAndColumn(at int) (line, column int) {
	at = min(max(at, 0), len(t.string))
	line, found := slices.BinarySearch(t.lines, at)
	if !found {
		line-- // at is inside a line, which begins before at
	}
	return line + 1, t.charsBefore(at) - t.charsBefore(t.lines[line]) + 1
}

// invalidUTF8 returns the offset of the first byte that is not UTF-8, or -1. It also finds a second byte order mark at the start, and byte order marks of
// other encodings, which the TOML library would drop.
func (t text) invalidUTF8() int {
	for at := 0; at < len(t.string); {
		r, n := utf8.DecodeRuneInString(t.string[at:])
		if r == utf8.RuneError && n == 1 || r == '\ufeff' && at == 0 {
			return at
		}
		at += n
	}
	return -1
}

// withoutTwins replaces duplicate definitions by blanks, so that the positions of all other definitions stay the same. In an inline table it also replaces the
// comma after the definition.
func (t text) withoutTwins(twins []twin) string {
	if len(twins) == 0 {
		return t.string
	}
	blank := []byte(t.string)
	for _, twin := range twins {
		upTo := twin.upTo
		if rest := strings.TrimLeft(t.string[upTo:], " \t"); strings.HasPrefix(rest, ",") {
			upTo = len(blank) - len(rest) + 1
		}
		for i := twin.from; i < upTo; i++ {
			if blank[i] != '\n' {
				blank[i] = ' '
			}
		}
	}
	return string(blank)
}

// The limits of a configuration. The scanner enforces them before the TOML library decodes the text, because the memory that the library needs grows with the
// depth and the number of values and with the length of keys.
const (
	// MaxFileBytes is the maximum length of one file in bytes, enough for about 25,000 jobs.
	MaxFileBytes  = 4 << 20
	maxTotalBytes = 16 << 20 // maximum length of all files together
	maxFiles      = 10_000
	maxDepth      = 32        // maximum depth of nested brackets and braces
	maxParts      = 32        // maximum number of parts of a dotted key
	maxKey        = 1 << 10   // maximum length of one part of a key
	maxString     = 256 << 10 // maximum length of a string in the file; Linux permits 128 KiB for an argument or a variable
	maxValues     = 250_000   // maximum number of values and table headers in all files
	maxKeyBytes   = 64 << 20  // maximum length of all keys together, each including the names of the tables around it
	maxFaults     = 1000      // maximum number of faults that are reported; the same limit applies to warnings
	maxTwins      = 100       // maximum number of duplicate definitions that are reported per file
)

// partCost is added to the length of each part of a key in the sum that maxKeyBytes limits.
const partCost = 16

const (
	tooDeep      = "nested more than 32 deep"
	tooManyParts = "a key of more than 32 parts"
	keyTooLong   = "a key of more than 1 KiB"
	textTooLong  = "a string of more than 256 KiB"
)

// Bounds has the remaining budget of each limit, for all files together.
type Bounds struct {
	files, bytes, values, keyBytes int
}

// NewBounds returns the limits of a whole configuration.
func NewBounds() *Bounds {
	return &Bounds{files: maxFiles, bytes: maxTotalBytes, values: maxValues, keyBytes: maxKeyBytes}
}

// Take subtracts a file of the given length from the budget. It returns an error if a limit is exceeded.
func (b *Bounds) Take(bytes int) error {
	b.files--
	b.bytes -= bytes
	switch {
	case b.files < 0:
		return fmt.Errorf("more than %d files", maxFiles)
	case b.bytes < 0:
		return fmt.Errorf("the configuration is longer than %d MiB in all files", maxTotalBytes>>20)
	}
	return nil
}

// spendValues subtracts values and the cost of their keys from the budget. It returns a message if a limit is exceeded, or "".
func (b *Bounds) spendValues(values, keyBytes int) string {
	b.values -= values
	b.keyBytes -= keyBytes
	switch {
	case b.values < 0:
		return fmt.Sprintf("more than %d values and headers in all files", maxValues)
	case b.keyBytes < 0:
		return fmt.Sprintf("the names of keys and the tables around them are longer than %d MiB in all files", maxKeyBytes>>20)
	}
	return ""
}
