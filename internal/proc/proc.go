// Package proc reads the state of processes, cgroups and mounts from Linux. It identifies processes in a way that is safe against reused PIDs.
package proc

// Life is the state of a process, if this process can determine it.
type Life int

const (
	// Unknown is the state of a process that this process can't see: it is on another machine, in another namespace, or hidden.
	Unknown Life = iota
	// Alive is the state of a running process.
	Alive
	// Gone is the state of a process that has exited.
	Gone
)
