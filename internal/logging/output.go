package logging

import (
	"bytes"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
)

// Limits of one run's output in the log. A run may print as fast as it can, and its log is on a disk that others need.
const (
	// OutputBurst is how many bytes go to the log at once, and OutputRate how many of each second go on after that.
	OutputBurst, OutputRate = 1 << 20, 256 << 10
	// MaxOutputLine is how many bytes of a line go to the log, as JSON has them. With the other keys the line stays below [MaxJSONLine].
	MaxOutputLine = MaxJSONLine - 2<<10
	// lineCost is what a line takes besides its text: the other keys.
	lineCost = 256
)

// Output passes the output of one run on to its log. It belongs to one goroutine.
type Output struct {
	log    hclog.Logger
	budget float64 // bytes; below zero for a line that was begun within it
	at     time.Time

	lines, bytes int64 // dropped; of lines that were cut only the bytes
}

// NewOutput begins the output of a run.
func NewOutput(log hclog.Logger) *Output {
	return &Output{log: log, budget: OutputBurst, at: time.Now()}
}

// Line logs a line, unless the run has printed too much. Bytes that are no text are shown by replacement characters.
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
		for cut := n; n > cut-utf8.UTFMax && !utf8.RuneStart(line[n]); n-- { // back to the beginning of a character
		}
		o.bytes += int64(len(line) - n)
		line = line[:n]
	}
	text := Printable(line)
	if n := fitting(text, MaxOutputLine); n < len(text) {
		o.bytes += int64(len(text) - n)
		text = text[:n]
	}
	o.budget -= float64(len(text) + lineCost)
	o.log.Info(text, "stream", stream)
}

// End logs how much of the output was dropped, if any was.
func (o *Output) End() {
	if o.bytes > 0 || o.lines > 0 {
		o.log.Warn("output dropped from the log", "lines", o.lines, "bytes", o.bytes)
	}
}

// Printable is a line as text that is safe on a terminal, and not much longer as JSON: colours are left out, and each row of bytes that are no text, or
// that control a terminal, becomes one replacement character.
func Printable(line []byte) string {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if plain(line) {
		return string(line)
	}
	var text strings.Builder
	odd := false // the last character was replaced
	for len(line) > 0 {
		if n := colour(line); n > 0 {
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

// plain returns whether a line is printable ASCII, as most are.
func plain(line []byte) bool {
	for _, b := range line {
		if b != '\t' && (b < ' ' || b > '~') {
			return false
		}
	}
	return true
}

// colour is the length of the sequence with which a line begins that sets a terminal's colours; 0 if it begins with none.
func colour(line []byte) int {
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
