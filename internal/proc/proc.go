// Package proc reads the state of processes, cgroups and mounts from Linux. It identifies processes in a way that is safe against reused PIDs.
package proc

import (
	"errors"
	"slices"
	"syscall"
)

// Life is the state of another process, as far as this process can determine it.
type Life int

const (
	// Unknown is the state of a process that this process can't see: it is on another machine, in another namespace, or hidden.
	Unknown Life = iota
	// Alive is the state of a running process.
	Alive
	// Gone is the state of a process that has exited.
	Gone
)

// exhaustionCodes lists the errors for a lack of file descriptors, of processes and threads, of memory, and of space on a disk or in a kernel table.
var exhaustionCodes = []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM, syscall.ENOSPC}

// IsExhausted reports whether an error was caused by one of these shortages. The failed call may succeed later, or on another machine.
func IsExhausted(err error) bool {
	return slices.ContainsFunc(exhaustionCodes, func(code syscall.Errno) bool { return errors.Is(err, code) })
}
