// Package proc reads the state of processes and cgroups from Linux, and identifies processes beyond their reused PIDs.
package proc

// Life is the state of a process, as far as this process can determine it.
type Life int

const (
	// Unknown is the state of a process on another machine or in another namespace, or of a hidden one.
	Unknown Life = iota
	// Alive is the state of a running process.
	Alive
	// Gone is the state of a process that has ended.
	Gone
)
