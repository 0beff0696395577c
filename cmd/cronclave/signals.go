package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

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
	if !ignoredAtStart(syscall.SIGHUP) { // not under nohup
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
