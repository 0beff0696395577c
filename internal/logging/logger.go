package logging

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
)

// Options select the level and the format of a log.
type Options struct {
	Level hclog.Level
	JSON  bool // false means text
	Color bool // ignored for JSON
}

// timeFormat is the time format of a text log. It contains the date and the zone, because logs are read on other days and on other machines.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// New returns a logger, and the Writer that writes the logger's lines to out. If out is a file, New writes to a duplicate of its descriptor, because Go ends
// a process that writes to stdout or stderr after the reader of the pipe is gone.
func New(out io.Writer, o Options) (hclog.Logger, *Writer) {
	if f, ok := out.(*os.File); ok {
		out = duplicateFile(f)
	}
	w := NewWriter(out, func(dropped uint64) []byte {
		var line bytes.Buffer
		always := o
		always.Level = min(o.Level, hclog.Warn)
		always.newLogger(&line).Warn("log lines dropped", "lines", dropped)
		return line.Bytes()
	})
	return o.newLogger(w), w
}

func (o Options) newLogger(out io.Writer) hclog.Logger {
	options := &hclog.LoggerOptions{Level: o.Level, Output: out, IndependentLevels: true, JSONFormat: o.JSON, JSONEscapeDisabled: true}
	if !o.JSON {
		options.TimeFormat = timeFormat
	}
	if o.Color && !o.JSON {
		options.Color = hclog.ForceColor
	}
	if o.JSON {
		options.Output = renamed{out}
	}
	return hclog.New(options)
}

// renamed replaces the JSON keys of hclog by level, msg, module and time.
type renamed struct{ out io.Writer }

func (r renamed) Write(line []byte) (int, error) { return r.LevelWrite(hclog.Error, line) }

func (r renamed) LevelWrite(level hclog.Level, line []byte) (int, error) {
	text := shortenLine(renameKeys(line))
	if w, ok := r.out.(hclog.LevelWriter); ok {
		return w.LevelWrite(level, text)
	}
	return r.out.Write(text)
}

// jsonKeys lists the keys in the order of a line, which is alphabetical. Each pattern includes the comma or brace before the key, so it can't match inside a
// string: quotation marks are escaped there.
var jsonKeys = []struct{ from, to string }{
	{`{"@level":`, `{"level":`},
	{`,"@message":`, `,"msg":`},
	{`,"@module":`, `,"module":`},
	{`,"@timestamp":`, `,"time":`},
}

func renameKeys(line []byte) []byte {
	text := make([]byte, 0, len(line))
	for _, key := range jsonKeys {
		before, after, found := bytes.Cut(line, []byte(key.from))
		if !found {
			continue
		}
		text = append(append(text, before...), key.to...)
		line = after
	}
	return append(text, line...)
}

// MaxJSONLine is the maximum length of a line of a JSON log in bytes, including the newline. Container runtimes split longer lines.
const MaxJSONLine = 16<<10 - 1

// fittingLength returns the length of the longest prefix of text that takes up to most bytes in JSON. The prefix ends with a whole character.
func fittingLength(text string, most int) int {
	for i, r := range text {
		switch {
		case r == '"' || r == '\\' || r == '\t' || r == '\n' || r == '\r':
			most -= 2
		case r < ' ' || r == '\u2028' || r == '\u2029' || r == utf8.RuneError:
			most -= 6 // written as an escape sequence such as \u001b
		default:
			most -= utf8.RuneLen(r)
		}
		if most < 0 {
			return i
		}
	}
	return len(text)
}

// shortenLine shortens the longest values of a JSON line until the line has at most MaxJSONLine bytes. If it can't parse the line, it returns the line
// unchanged.
func shortenLine(line []byte) []byte {
	if len(line) <= MaxJSONLine {
		return line
	}
	var keys map[string]any
	if json.Unmarshal(line, &keys) != nil {
		return line
	}
	for most := MaxJSONLine / 2; most > 0; most /= 2 {
		for name, value := range keys {
			if text, ok := value.(string); ok && fittingLength(text, most) < len(text) {
				keys[name] = text[:fittingLength(text, most)] + "…"
			}
		}
		var short bytes.Buffer
		encoder := json.NewEncoder(&short)
		encoder.SetEscapeHTML(false)
		if encoder.Encode(keys) != nil {
			return line
		}
		if short.Len() <= MaxJSONLine {
			return short.Bytes()
		}
	}
	return line
}

// rarelyEvery is the minimum time between log lines about an event that clients can cause.
const rarelyEvery = time.Minute

// Rarely counts events of one kind and limits their log lines to one per minute. It is safe for concurrent use.
type Rarely struct {
	mu     sync.Mutex
	count  int64     // events since the last log line
	logged time.Time // time of the last log line; time.Since uses its monotonic reading, so changes of the clock do not matter
}

// Due counts an event. If a log line is due, it returns the number of events since the last log line.
func (f *Rarely) Due() (events int64, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	if time.Since(f.logged) < rarelyEvery {
		return 0, false
	}
	events, f.count, f.logged = f.count, 0, time.Now()
	return events, true
}
