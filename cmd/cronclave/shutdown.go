package main

import (
	"os"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// sameSignal is how long after the first signal another one means the same: supervisors, and terminals with them, send two at a time.
	sameSignal = time.Second
	// lastResort is how long after the second signal the process ends by force, and leaves its jobs to the warden. With what then remains to be done it has
	// ended within a second, whatever hangs: Redis, the log, a disk.
	lastResort = 850 * time.Millisecond
)

// shutdown has a replica end as signals ask for. Its methods are called by one goroutine.
type shutdown struct {
	log hclog.Logger
	// drain has the replica end when its jobs have, abort has them killed, and force ends the process. None of them waits for anything.
	drain, abort, force func()

	stage stage
	begun time.Time // the drain
}

// stage is how far a shutdown is.
type stage int

const (
	running stage = iota
	draining
	stopping
)

// onSignals takes SIGTERM and SIGINT for a shutdown, and SIGHUP for a reload, until it is told to stop.
func (d *shutdown) onSignals(reload chan<- struct{}) (stop func()) {
	return watchSignals(func(s os.Signal) {
		if s != syscall.SIGHUP {
			d.signal(s)
			return
		}
		select {
		case reload <- struct{}{}:
		default: // one is asked for already
		}
	}, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
}

// signal takes one signal.
func (d *shutdown) signal(s os.Signal) {
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
