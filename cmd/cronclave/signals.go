package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

// watchSignals calls react for each of the given signals, one at a time. Until stop is called, these signals do not end the process. stop waits for the last
// call of react.
func watchSignals(react func(os.Signal), signals ...os.Signal) (stop func()) {
	arrived := make(chan os.Signal, 4)
	signal.Notify(arrived, signals...)
	over := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			select {
			case <-over:
				return
			case s := <-arrived:
				react(s)
			}
		}
	})
	return func() {
		signal.Stop(arrived)
		close(over)
		watcher.Wait()
	}
}

// stopOnSignal returns a context that ends at the first signal. At a second SIGINT or SIGTERM, it calls abort. A second SIGHUP or SIGPIPE does nothing: the
// kernel and the shell each send SIGHUP when a terminal closes, and each line without a reader causes a SIGPIPE. The caller must call done.
func stopOnSignal(ctx context.Context, log hclog.Logger, abort func()) (run context.Context, done func()) {
	run, cancel := context.WithCancel(ctx)
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE}
	if !ignoredAtStart(syscall.SIGHUP) { // under nohup, SIGHUP stays ignored
		signals = append(signals, syscall.SIGHUP)
	}
	stop := watchSignals(func(s os.Signal) {
		switch {
		case run.Err() == nil:
			log.Info("signal: stopping the job; a second one kills it at once", "signal", s.String())
			cancel()
		case s == syscall.SIGINT || s == syscall.SIGTERM:
			log.Warn("second signal: killing the job", "signal", s.String())
			abort()
		}
	}, signals...)
	return run, func() {
		stop()
		cancel()
	}
}

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
