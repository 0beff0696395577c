package logging

import (
	"bytes"
	"io"
	"os"

	"github.com/hashicorp/go-hclog"
)

// Options say what a log looks like.
type Options struct {
	Level hclog.Level
	JSON  bool // else text
	Color bool // of text
}

// timeFormat is that of text. It has the date, and the zone: logs are read on other days and machines than they are written on.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// New returns a logger, and the writer through which all of it goes to out. A file is written to by a descriptor of its own: a pipe without a reader
// would else end a process whose stdout or stderr it is.
func New(out io.Writer, o Options) (hclog.Logger, *Writer) {
	if f, ok := out.(*os.File); ok {
		out = duplicate(f)
	}
	w := NewWriter(out, func(dropped uint64) []byte {
		var line bytes.Buffer
		always := o
		always.Level = min(o.Level, hclog.Warn)
		always.logger(&line).Warn("log lines dropped", "lines", dropped)
		return line.Bytes()
	})
	return o.logger(w), w
}

func (o Options) logger(out io.Writer) hclog.Logger {
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

// renamed has the keys of hclog's JSON as users know them: time, level, msg, module.
type renamed struct{ out io.Writer }

// Write passes a line on.
func (r renamed) Write(line []byte) (int, error) { return r.LevelWrite(hclog.Error, line) }

// LevelWrite passes a line of a level on.
func (r renamed) LevelWrite(level hclog.Level, line []byte) (int, error) {
	text := shorten(rename(line))
	if w, ok := r.out.(hclog.LevelWriter); ok {
		return w.LevelWrite(level, text)
	}
	return r.out.Write(text)
}

// jsonKeys are in the order in which they stand in a line, whose keys are sorted. With the comma or brace before it none can be a part of a string, in which
// a quotation mark is escaped.
var jsonKeys = []struct{ from, to string }{
	{`{"@level":`, `{"level":`},
	{`,"@message":`, `,"msg":`},
	{`,"@module":`, `,"module":`},
	{`,"@timestamp":`, `,"time":`},
}

func rename(line []byte) []byte {
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
