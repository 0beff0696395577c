package console

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
)

// Output is stdout or stderr of this process. It keeps its first error, so that a command fails if any part of its output was lost.
//
// Other people may have written the names, output and errors that a command prints. On a terminal, control characters in them could move the cursor, hide
// lines or simulate input. An Output on a terminal therefore quotes control characters and invalid bytes. It lets colours pass, because commands use them.
// Elsewhere, such as in a pipe, it writes all bytes unchanged.
//
// It is safe for concurrent use.
type Output struct {
	file     io.Writer
	terminal bool
	failed   chan struct{} // closed after the first error

	mu   sync.Mutex
	rest []byte // beginning of a character that the next Write will complete
	err  error  // the first error
}

// NewOutput returns an Output that writes to f.
func NewOutput(f *os.File) *Output {
	return &Output{file: f, terminal: isatty.IsTerminal(f.Fd()), failed: make(chan struct{})}
}

// Write writes p. After an error, every Write returns that error.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	text := p
	if o.terminal {
		text, o.rest = quoteControls(append(o.rest, p...))
	}
	if o.writeFile(text); o.err != nil {
		return 0, o.err
	}
	return len(p), nil
}

// writeFile is called with mu held.
func (o *Output) writeFile(text []byte) {
	if _, err := o.file.Write(text); err != nil {
		o.err = fmt.Errorf("write output: %w", err)
		close(o.failed)
	}
}

// WhileWritable returns a context that ends when a Write to w fails, if w is an [Output]. For other writers it only ends with ctx. The caller must call the
// returned function.
func WhileWritable(ctx context.Context, w io.Writer) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	o, ok := w.(*Output)
	if !ok {
		return ctx, cancel
	}
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case <-o.failed:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel()
		watcher.Wait()
	}
}

// Finish writes the beginning of a character that no Write has completed, and returns the first error of w, if w is an [Output]. Otherwise it returns nil.
func Finish(w io.Writer) error {
	o, ok := w.(*Output)
	if !ok {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var text []byte
	for _, b := range o.rest {
		text = fmt.Appendf(text, `\x%02x`, b)
	}
	if o.rest = nil; o.err == nil && text != nil {
		o.writeFile(text)
	}
	return o.err
}

// Behind returns the file of w if w is an [Output], and otherwise w itself. Text written to the file is not quoted, so it must not come from other people.
func Behind(w io.Writer) io.Writer {
	if o, ok := w.(*Output); ok {
		return o.file
	}
	return w
}

// IsTerminal reports whether w is an [Output] on a terminal.
func IsTerminal(w io.Writer) bool {
	o, ok := w.(*Output)
	return ok && o.terminal
}

// colours matches the escape sequences that an Output lets pass. It permits no background and no black, which could hide text.
var colours = regexp.MustCompile(`^\x1b\[(?:(?:0|1|2|3|4|22|39|3[1-7]|9[1-7])(?:;(?:0|1|2|3|4|22|39|3[1-7]|9[1-7]))*)?m`)

// quoteControls quotes characters like JSON, so that JSON stays valid. It quotes invalid bytes, characters that change the direction of writing, and control
// characters other than line breaks and tabs. If the text ends within a character, rest is the beginning of that character.
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

// Clear clears the terminal, so that the next output begins at its top.
func Clear(w io.Writer) {
	_, _ = io.WriteString(Behind(w), "\x1b[H\x1b[2J") // on an error, the next output is below the old one
}
