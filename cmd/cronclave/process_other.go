//go:build !linux

package main

import (
	"os/signal"
	"syscall"
)

// keepSignals does nothing, because it is implemented on Linux only.
func keepSignals() {}

func ignoredAtStart(s syscall.Signal) bool { return signal.Ignored(s) }

// protectMemory does nothing, because only Linux has this protection.
func protectMemory() {}
