// Package proc reads what Linux says of processes and cgroups, and identifies processes beyond their numbers, which are used again.
package proc

// Life is whether a process lives, as far as this process can find out.
type Life int

const (
	// Unknown is the life of a process of another machine or namespace, or of one that is hidden.
	Unknown Life = iota
	// Alive is a process that runs.
	Alive
	// Gone is a process that has ended.
	Gone
)
