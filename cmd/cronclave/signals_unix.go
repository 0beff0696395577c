//go:build unix

package main

import (
	"os"
	"syscall"
)

// userSignals have no meaning of their own for most programs.
var userSignals = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2}
