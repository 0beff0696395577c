package console

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
)

// terminal is stdout or stderr where that is a terminal. All output of a command goes through it. Names, output and errors may come from others, and
// could otherwise move the cursor, hide lines or answer in the user's name, so bytes that are no text are quoted. Colours pass, since a command uses
// them.
type terminal struct {
	file io.Writer

	mu   sync.Mutex
	rest []byte // the beginning of a character, whose end comes with the next Write
}

// OnTerminal puts a file behind a terminal's quotes, if it is one. Elsewhere, as in a pipe, the output stays as it is, byte by byte.
func OnTerminal(f *os.File) io.Writer {
	if !isatty.IsTerminal(f.Fd()) {
		return f
	}
	return &terminal{file: f}
}

// Behind is the file of a terminal, and other writers themselves: for the warden, which prints nothing that comes from others.
func Behind(w io.Writer) io.Writer {
	if t, ok := w.(*terminal); ok {
		return t.file
	}
	return w
}

// IsTerminal reports whether a writer is that of [OnTerminal] for a terminal.
func IsTerminal(w io.Writer) bool {
	_, ok := w.(*terminal)
	return ok
}

// Write takes all of p, or none if the terminal fails.
func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text, rest := quoteControls(append(t.rest, p...))
	t.rest = rest
	if _, err := t.file.Write(text); err != nil {
		return 0, fmt.Errorf("write to the terminal: %w", err)
	}
	return len(p), nil
}

// colours are the sequences that pass: neither concealed, nor black, nor with a background.
var colours = regexp.MustCompile(`^\x1b\[(?:(?:0|1|2|3|4|22|39|3[1-7]|9[1-7])(?:;(?:0|1|2|3|4|22|39|3[1-7]|9[1-7]))*)?m`)

// quoteControls quotes bytes that are no text as JSON does it, so that JSON stays JSON: all control characters but the ends of lines and tabs, those
// that change the direction of writing, and bytes that are no characters. rest is the beginning of a character at the end.
func quoteControls(text []byte) (quoted, rest []byte) {
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			return quoted, append([]byte(nil), text...)
		}
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1:
			quoted = fmt.Appendf(quoted, `\x%02x`, text[0])
		case r == '\x1b' && colours.Match(text):
			n = len(colours.Find(text))
			quoted = append(quoted, text[:n]...)
		case r == '\r' && n < len(text) && text[n] == '\n', r == '\n', r == '\t':
			quoted = append(quoted, text[:n]...)
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
			quoted = fmt.Appendf(quoted, `\u%04x`, r)
		default:
			quoted = append(quoted, text[:n]...)
		}
		text = text[n:]
	}
	return quoted, nil
}

// Clear has a terminal print from the top.
func Clear(w io.Writer) {
	_, _ = io.WriteString(Behind(w), "\x1b[H\x1b[2J") // else the text follows the last one
}
