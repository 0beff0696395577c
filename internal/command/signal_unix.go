//go:build linux || darwin

package command

import (
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalName is a signal's name, such as SIGTERM, or SIG42 for one that has none.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return "SIG" + strconv.Itoa(int(s))
}

// signalNumber is the inverse of signalName, 0 for a name that is none.
func signalNumber(name string) int {
	if s := unix.SignalNum(name); s != 0 {
		return int(s)
	}
	return fromNumbered(name)
}
