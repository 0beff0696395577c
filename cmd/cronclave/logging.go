package main

import (
	"io"
	"os"

	"github.com/hashicorp/go-hclog"
	"github.com/mattn/go-isatty"
)

// logger writes to stderr: text on a terminal, JSON elsewhere, unless a flag says which.
func (a *app) logger() (hclog.Logger, error) {
	level := hclog.LevelFromString(a.logLevel)
	if level == hclog.NoLevel {
		return nil, usageError("--log-level %q: it is one of trace, debug, info, warn, error", a.logLevel)
	}
	terminal := isTerminal(a.err)
	o := &hclog.LoggerOptions{Level: level, Output: a.err, IndependentLevels: true}
	switch {
	case a.logFormat == "json", a.logFormat == "" && !terminal:
		o.JSONFormat = true
	case a.logFormat == "text", a.logFormat == "":
		o.TimeFormat = "15:04:05.000"
		if terminal && os.Getenv("NO_COLOR") == "" {
			o.Color = hclog.ForceColor
		}
	default:
		return nil, usageError("--log-format %q: it is text or json", a.logFormat)
	}
	return hclog.New(o), nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
