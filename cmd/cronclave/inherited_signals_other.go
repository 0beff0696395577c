//go:build !linux

package main

import (
	"os/signal"
	"syscall"
)

// keepSignals has no system call for it here.
func keepSignals() {}

// ignoredAtStart reports whether this process was started to ignore a signal.
func ignoredAtStart(s syscall.Signal) bool { return signal.Ignored(s) }
