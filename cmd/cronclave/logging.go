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
	// logPatience is the maximum time to wait for the reader of the log when a command ends. lastLog is that time if the process is ended by force.
	logPatience, lastLog = time.Second, 50 * time.Millisecond
)

// newLogger returns a logger that writes to stderr. By default it writes text to a terminal, and JSON otherwise. It never waits for the reader of stderr.
func (a *app) newLogger() (hclog.Logger, error) {
	o, err := a.logOptions()
	if err != nil {
		return nil, err
	}
	out := a.err
	if !console.IsTerminal(out) {
		out = console.Behind(out) // the log detects the lost reader of a file by itself; stderr must not end the process by SIGPIPE
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

// messageWriter returns the writer for messages that are not log lines. If there is a logger, it is the writer of the log. Messages and log lines then stay
// in order, and no message waits for the reader of stderr.
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

// closeLog waits for the reader of the log: up to logPatience, or up to lastLog if forced has ended.
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
