//go:build linux || darwin

package process

import (
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalName returns the name of a signal, such as SIGTERM, or SIG42 for a signal without a name.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return "SIG" + strconv.Itoa(int(s))
}

// signalNumber is the inverse of signalName. It returns 0 for an unknown name.
func signalNumber(name string) int {
	if s := unix.SignalNum(name); s != 0 {
		return int(s)
	}
	return fromNumbered(name)
}
