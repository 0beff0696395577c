package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/logging"
)

const (
	// logPatience bounds the wait for the reader of the log at the end of a command, lastLog at the end of one that is ended by force.
	logPatience, lastLog = time.Second, 50 * time.Millisecond
)

// newLogger returns a logger to stderr. Unless flags say otherwise, it writes text to a terminal and JSON to other files. It never waits for the reader.
func (a *app) newLogger() (hclog.Logger, error) {
	o, err := a.logOptions()
	if err != nil {
		return nil, err
	}
	out := a.err
	if !console.IsTerminal(out) {
		out = console.Behind(out) // the log needs the file itself: a write to descriptor 2 ends the process by SIGPIPE if the reader is gone
	}
	log, writer := logging.New(out, o)
	a.logWriter.Store(writer)
	return log, nil
}

func (a *app) logOptions() (logging.Options, error) {
	o := logging.Options{Level: hclog.LevelFromString(a.logLevel)}
	if o.Level == hclog.NoLevel {
		return o, usageError("--log-level %q: it is one of trace, debug, info, warn, error", a.logLevel)
	}
	terminal := console.IsTerminal(a.err)
	switch {
	case a.logFormat == "json", a.logFormat == "" && !terminal:
		o.JSON = true
	case a.logFormat == "text", a.logFormat == "":
		o.Color = terminal && os.Getenv(envNoColor) == ""
	default:
		return o, usageError("--log-format %q: it is text or json", a.logFormat)
	}
	return o, nil
}

// messageWriter returns the writer for messages besides the log. It is stderr, through the log's writer if there is one: then messages and log lines are in
// order, and no message waits for the reader.
func (a *app) messageWriter() io.Writer {
	if w := a.logWriter.Load(); w != nil {
		return w
	}
	return a.err
}

// logDropped returns the number of lines that the log has dropped.
func (a *app) logDropped() uint64 {
	if w := a.logWriter.Load(); w != nil {
		return w.Dropped()
	}
	return 0
}

// closeLog waits for the reader of the log, up to logPatience, or up to lastLog if the process is ended by force.
func (a *app) closeLog(forced context.Context) {
	w := a.logWriter.Load()
	if w == nil {
		return
	}
	ctx, cancel := context.WithTimeout(forced, logPatience)
	if forced.Err() != nil {
		ctx, cancel = context.WithTimeout(context.WithoutCancel(forced), lastLog)
	}
	defer cancel()
	w.Close(ctx)
}
