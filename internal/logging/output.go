package logging

import (
	"bytes"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
)

// The limits of a run's output in the log. A run may print as fast as it can, and the log may be on a disk that other programs need.
const (
	// OutputBurst is the number of bytes that can be logged at once. OutputRate is the number of bytes per second after that.
	OutputBurst, OutputRate = 1 << 20, 256 << 10
	// MaxOutputLine is the maximum length of a line of output in bytes, encoded as JSON. With the other keys of the log line, the total stays below
	// [MaxJSONLine].
	MaxOutputLine = MaxJSONLine - 2<<10
	// lineCost is the cost of a line in bytes, in addition to its text. It stands for the other keys of the log line.
	lineCost = 256
)

// Output writes the output of one run to its log, within limits. It is not safe for concurrent use.
type Output struct {
	log    hclog.Logger
	budget float64 // bytes that may be logged now; negative after a line that exceeded it
	at     time.Time

	lines, bytes int64 // number of dropped lines and bytes; a line that was cut counts only in bytes
}

// NewOutput returns the Output of one run.
func NewOutput(log hclog.Logger) *Output {
	return &Output{log: log, budget: OutputBurst, at: time.Now()}
}

// Line logs a line, unless the limits are exceeded. Bytes that are not valid text become replacement characters.
func (o *Output) Line(stream string, line []byte) {
	now := time.Now()
	o.budget = min(OutputBurst, o.budget+now.Sub(o.at).Seconds()*OutputRate)
	o.at = now
	if o.budget <= 0 {
		o.lines++
		o.bytes += int64(len(line))
		return
	}
	if n := min(len(line), MaxOutputLine); n < len(line) {
		for cut := n; n > cut-utf8.UTFMax && !utf8.RuneStart(line[n]); n-- { // back to the start of the character
		}
		o.bytes += int64(len(line) - n)
		line = line[:n]
	}
	text := Printable(line)
	if n := fittingLength(text, MaxOutputLine); n < len(text) {
		o.bytes += int64(len(text) - n)
		text = text[:n]
	}
	o.budget -= float64(len(text) + lineCost)
	o.log.Info(text, "stream", stream)
}

// End logs the number of dropped lines and bytes, if there are any.
func (o *Output) End() {
	if o.bytes > 0 || o.lines > 0 {
		o.log.Warn("output dropped from the log", "lines", o.lines, "bytes", o.bytes)
	}
}

// Printable returns a line as text that is safe on a terminal and not much longer as JSON. It removes escape sequences for colours. Each sequence of bytes
// that are not valid text, or that control a terminal, becomes one replacement character.
func Printable(line []byte) string {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if isPlain(line) {
		return string(line)
	}
	var text strings.Builder
	odd := false // whether the last character was replaced
	for len(line) > 0 {
		if n := colourLength(line); n > 0 {
			line = line[n:]
			continue
		}
		r, n := utf8.DecodeRune(line)
		line = line[n:]
		bad := r == utf8.RuneError || unicode.IsControl(r) && r != '\t'
		switch {
		case !bad:
			text.WriteRune(r)
		case !odd:
			text.WriteRune(utf8.RuneError)
		}
		odd = bad
	}
	return text.String()
}

// isPlain reports whether a line is printable ASCII. Most lines are.
func isPlain(line []byte) bool {
	for _, b := range line {
		if b != '\t' && (b < ' ' || b > '~') {
			return false
		}
	}
	return true
}

func colourLength(line []byte) int {
	const longest = 32
	if !bytes.HasPrefix(line, []byte("\x1b[")) {
		return 0
	}
	for i, b := range line[:min(len(line), longest)] {
		switch {
		case i < 2 || b == ';' || b >= '0' && b <= '9':
		case b == 'm':
			return i + 1
		default:
			return 0
		}
	}
	return 0
}
