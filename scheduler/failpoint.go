//go:build !failpoints || !unix

package scheduler

// failpoint is a moment at which tests kill the replica: see failpoint_armed.go. In a build for users it does nothing.
func failpoint(string, *Run) {}
