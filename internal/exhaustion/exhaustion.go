// Package exhaustion distinguishes errors of an exhausted machine, or of an exhausted quota of this process, from errors that the request itself
// caused.
package exhaustion

import (
	"errors"
	"slices"
	"syscall"
)

// codes are the system's: of file descriptors, processes and threads, memory, and what a disk or a table of the kernel holds.
var codes = []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM, syscall.ENOSPC}

// Is returns whether an error is of that kind: the same call may work later, or on another machine.
func Is(err error) bool {
	return slices.ContainsFunc(codes, func(code syscall.Errno) bool { return errors.Is(err, code) })
}
