package main

import (
	"os"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// sameSignal is the time for which further signals count as the first one. Supervisors and terminals may each send the same signal.
	sameSignal = time.Second
	// lastResort is the time from the second signal to the end of the process by force, which leaves its jobs to the warden. With the remaining work,
	// the process ends within a second even if Redis, the log or a disk hangs.
	lastResort = 850 * time.Millisecond
)

// shutdown ends a replica according to signals. Its methods are called by one goroutine.
type shutdown struct {
	log hclog.Logger
	// drain ends the replica after its jobs, abort kills the jobs, and force ends the process. They do not block.
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

// onSignals handles SIGTERM and SIGINT as a shutdown, and SIGHUP as a reload, until stop is called.
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

// handleSignal handles one signal.
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
