package replica

import (
	"context"
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/process"
	"github.com/cronclave/cronclave/internal/warden"
)

// Processes runs commands. If this process dies or freezes, the warden kills them.
type Processes struct {
	// Host runs the commands.
	Host   *process.Host
	warden *warden.Warden
	log    hclog.Logger
}

// A WardenLog is the destination of the warden's log after this process is gone. Its zero value logs nothing.
type WardenLog struct {
	Stderr *os.File
	JSON   bool
}

// StartProcesses starts the warden. [Processes.Close] ends it.
func StartProcesses(log hclog.Logger, own WardenLog) (*Processes, error) {
	p := &Processes{log: log}
	var err error
	if p.warden, err = warden.Start(warden.Config{Logger: log, Stderr: own.Stderr, JSON: own.JSON}); err != nil {
		return nil, err
	}
	if p.Host, err = process.NewHost(process.HostConfig{Logger: log, Warden: watchman{p.warden}}); err != nil {
		p.Close()
		return nil, fmt.Errorf("prepare to run commands: %w", err)
	}
	return p, nil
}

// Close ends the warden. Call it after the last run has ended.
func (p *Processes) Close() {
	if p.Host != nil {
		if err := p.Host.Close(); err != nil {
			p.log.Warn("cleanup after commands failed", "error", err)
		}
	}
	p.warden.Close()
}

// watchWarden calls drain if the warden is gone and cannot be started again. It returns after that, or when ctx ends.
func (p *Processes) watchWarden(ctx context.Context, drain func(cause error)) {
	select {
	case <-p.warden.Failed():
		p.log.Error("draining: warden cannot be started", "error", p.warden.Err())
		drain(p.warden.Err())
	case <-ctx.Done():
	}
}

// A watchman adapts a warden to the interface of package command.
type watchman struct{ *warden.Warden }

// Watch registers a run.
func (w watchman) Watch(r process.Watched) process.Ward { return w.Warden.Watch(warden.Run(r)) }
