package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/command"
	"github.com/cronclave/cronclave/internal/warden"
)

// processes runs commands, and has a warden that ends them where we can't.
type processes struct {
	host   *command.Host
	warden *warden.Warden
	log    hclog.Logger
}

// wardenLog is where the warden logs what it does when this process is gone; the zero value is nowhere.
type wardenLog struct {
	stderr *os.File
	json   bool
}

// wardenLog is this process' own log, unless that leaves warnings out.
func (a *app) wardenLog() wardenLog {
	stderr, isFile := behind(a.err).(*os.File)
	o, err := a.logOptions()
	if !isFile || err != nil || o.Level > hclog.Warn {
		return wardenLog{}
	}
	return wardenLog{stderr, o.JSON}
}

func newProcesses(log hclog.Logger, own wardenLog) (*processes, error) {
	p := &processes{log: log}
	var err error
	if p.warden, err = warden.Start(warden.Config{Logger: log, Stderr: own.stderr, JSON: own.json}); err != nil {
		return nil, err
	}
	if p.host, err = command.NewHost(command.HostConfig{Logger: log, Warden: watchman{p.warden}}); err != nil {
		p.close()
		return nil, fmt.Errorf("prepare to run commands: %w", err)
	}
	return p, nil
}

// close is called after the last run. The warden outlives what it watches over.
func (p *processes) close() {
	if p.host != nil {
		if err := p.host.Close(); err != nil {
			p.log.Warn("clean up after commands", "error", err)
		}
	}
	p.warden.Close()
}

// mind begins the drain when there is no warden any more and none can be started. It returns when ctx ends.
func (p *processes) mind(ctx context.Context, drain func(cause error)) {
	select {
	case <-p.warden.Failed():
		p.log.Error("draining: no warden can be started", "error", p.warden.Err())
		drain(p.warden.Err())
	case <-ctx.Done():
	}
}

// watchman is a warden as package command wants it.
type watchman struct{ *warden.Warden }

// Watch registers a run.
func (w watchman) Watch(r command.Watched) command.Ward { return w.Warden.Watch(warden.Run(r)) }

// beWarden is what this program does as the helper of another: see package warden.
func beWarden() int {
	if err := warden.Main(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cronclave:", err)
		return exitFailed
	}
	return 0
}
