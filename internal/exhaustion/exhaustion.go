// Package exhaustion distinguishes errors of an exhausted machine, or of an exhausted quota of this process, from errors that the request itself caused.
package exhaustion

import (
	"errors"
	"slices"
	"syscall"
)

// codes lists the errors for a lack of file descriptors, of processes and threads, of memory, and of space on a disk or in a kernel table.
var codes = []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM, syscall.ENOSPC}

// Is reports whether an error was caused by exhaustion. The same call may succeed later, or on another machine.
func Is(err error) bool {
	return slices.ContainsFunc(codes, func(code syscall.Errno) bool { return errors.Is(err, code) })
}
