package main

import (
	"os"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// sameSignal is the time after the first signal in which further signals are ignored. On Ctrl-C, a terminal and a supervisor may both send a signal.
	sameSignal = time.Second
	// lastResort is the time after the second signal at which the process is ended by force, and its jobs are left to the warden. So the process ends within
	// a second, even if Redis, the log or a disk hangs.
	lastResort = 850 * time.Millisecond
)

// shutdown ends a replica in stages, driven by signals. One goroutine calls its methods.
type shutdown struct {
	log hclog.Logger
	// drain lets the jobs finish and then ends the replica, abort kills the jobs, and force ends the process. The functions do not block.
	drain, abort, force func()

	stage stage
	begun time.Time // start of the drain
}

// stage is the progress of a shutdown.
type stage int

const (
	running stage = iota
	draining
	stopping
)

// onSignals starts to handle signals: SIGTERM and SIGINT end the replica, and SIGHUP reloads the configuration. The caller must call stop.
func (d *shutdown) onSignals(reload chan<- struct{}) (stop func()) {
	return watchSignals(func(s os.Signal) {
		if s != syscall.SIGHUP {
			d.handleSignal(s)
			return
		}
		select {
		case reload <- struct{}{}:
		default: // a reload is pending already
		}
	}, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
}

// handleSignal handles a SIGTERM or a SIGINT.
func (d *shutdown) handleSignal(s os.Signal) {
	switch {
	case d.stage == running:
		d.stage, d.begun = draining, time.Now()
		d.log.Info("signal: draining; a second one after a second or more kills the jobs and exits", "signal", s.String())
		d.drain()
	case d.stage == draining && time.Since(d.begun) < sameSignal:
		d.log.Info("signal ignored: less than a second after the first", "signal", s.String())
	case d.stage == draining:
		d.stage = stopping
		time.AfterFunc(lastResort, func() {
			d.log.Error("shutdown hangs: exiting by force; the warden process kills the jobs that are left", "after", lastResort.String())
			d.force()
		})
		d.log.Warn("second signal: stopping at once", "signal", s.String())
		d.abort()
	}
}
