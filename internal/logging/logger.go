package logging

import (
	"bytes"
	"io"
	"os"

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

// New returns a logger, and the Writer that writes the logger's lines to out. If out is a file, New writes to a duplicate of its descriptor, because a write
// to stdout or stderr ends the process if it is a pipe without a reader.
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

// Write passes on a line whose level is unknown.
func (r renamed) Write(line []byte) (int, error) { return r.LevelWrite(hclog.Error, line) }

// LevelWrite passes on a line and its level.
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
