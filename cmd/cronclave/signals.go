package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/hashicorp/go-hclog"
)

// watchSignals calls react for each of the given signals, one after another. They do not end the process in the meantime. stop ends the watch, and
// waits for the last call.
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

// stopOnSignal returns a context that ends at the first signal. abort is called when the user sends another one. The loss of a terminal (SIGHUP, from
// the kernel and from the shell) and of a reader (SIGPIPE, with every line) only end the context. done ends the watch.
func stopOnSignal(ctx context.Context, log hclog.Logger, abort func()) (run context.Context, done func()) {
	run, cancel := context.WithCancel(ctx)
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE}
	if !ignoredAtStart(syscall.SIGHUP) { // as under nohup
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
