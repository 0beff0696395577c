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

// Output is stdout or stderr of this process. It remembers its first error, so that a command with output in many places fails if any of it was lost.
//
// Names, output and errors may come from other people. On a terminal they could move the cursor, hide lines or answer in the user's name. Therefore
// an Output quotes control characters and invalid bytes if it is a terminal. It passes colours, because commands use them. To other files, such as
// pipes, it writes all bytes unchanged.
//
// It is safe for concurrent use.
type Output struct {
	file     io.Writer
	terminal bool
	failed   chan struct{} // closed after the first error

	mu   sync.Mutex
	rest []byte // beginning of a character that the next Write completes
	err  error  // the first error
}

// NewOutput returns the output to a file.
func NewOutput(f *os.File) *Output {
	return &Output{file: f, terminal: isatty.IsTerminal(f.Fd()), failed: make(chan struct{})}
}

// Write writes p, or returns the first error of this output.
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
	if _, err := o.file.Write(text); err != nil {
		o.err = fmt.Errorf("write output: %w", err)
		close(o.failed)
		return 0, o.err
	}
	return len(p), nil
}

// Err returns the first error of a Write.
func (o *Output) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// WhileWritable returns a context that ends when a Write to w has failed, if w is an [Output]. Other writers never end it.
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

// WriteError returns the first error of an [Output]. For other writers it returns nil.
func WriteError(w io.Writer) error {
	if o, ok := w.(*Output); ok {
		return o.Err()
	}
	return nil
}

// Behind returns the file of an [Output], and any other writer unchanged. The warden uses it, because it prints nothing from other people.
func Behind(w io.Writer) io.Writer {
	if o, ok := w.(*Output); ok {
		return o.file
	}
	return w
}

// IsTerminal reports whether w is an [Output] to a terminal.
func IsTerminal(w io.Writer) bool {
	o, ok := w.(*Output)
	return ok && o.terminal
}

// colours matches the escape sequences that pass. They neither hide text, nor make it black, nor set a background.
var colours = regexp.MustCompile(`^\x1b\[(?:(?:0|1|2|3|4|22|39|3[1-7]|9[1-7])(?:;(?:0|1|2|3|4|22|39|3[1-7]|9[1-7]))*)?m`)

// quoteControls quotes characters in the way of JSON, so that JSON stays valid. It quotes control characters other than line ends and tabs,
// characters that change the direction of writing, and invalid bytes. rest is the beginning of an incomplete character at the end.
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

// Clear clears a terminal, so that output starts at the top.
func Clear(w io.Writer) {
	_, _ = io.WriteString(Behind(w), "\x1b[H\x1b[2J") // otherwise the text is appended
}
