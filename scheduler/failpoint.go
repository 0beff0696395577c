//go:build !failpoints || !unix

package scheduler

// failpoint is a moment at which tests kill the replica: see failpoint_armed.go. It is nothing in what users run.
func failpoint(string, *Run) {}
