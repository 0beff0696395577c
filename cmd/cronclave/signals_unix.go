//go:build unix

package main

import (
	"os"
	"syscall"
)

// userSignals are signals that have no fixed meaning. lock passes them on to the command.
var userSignals = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2}
