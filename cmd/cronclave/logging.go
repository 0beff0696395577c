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
	// logPatience is how long the end of a command waits for the reader of its log, and lastLog how long that of one that is ended by force.
	logPatience, lastLog = time.Second, 50 * time.Millisecond
)

// logger logs to stderr: text on a terminal, JSON elsewhere, unless a flag says which. It never waits for the reader of stderr.
func (a *app) logger() (hclog.Logger, error) {
	o, err := a.logOptions()
	if err != nil {
		return nil, err
	}
	out := a.err
	if !console.IsTerminal(out) {
		out = console.Behind(out) // The log needs the file: a write to descriptor 2 ends the process by SIGPIPE once the reader is gone.
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

// says is stderr for what a command says beside its log: in order with it, and without waiting for the reader, where there is one.
func (a *app) says() io.Writer {
	if w := a.logWriter.Load(); w != nil {
		return w
	}
	return a.err
}

// logDropped is how many lines did not get into the log.
func (a *app) logDropped() uint64 {
	if w := a.logWriter.Load(); w != nil {
		return w.Dropped()
	}
	return 0
}

// closeLog waits for the reader of the log, but not for long, and hardly at all once the process is ended by force.
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
