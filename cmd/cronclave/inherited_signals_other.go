//go:build !linux

package main

import (
	"os/signal"
	"syscall"
)

// keepSignals does nothing: it is only implemented on Linux.
func keepSignals() {}

// ignoredAtStart reports whether this process ignored a signal at its start.
func ignoredAtStart(s syscall.Signal) bool { return signal.Ignored(s) }
