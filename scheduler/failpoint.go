//go:build !failpoints || !unix

package scheduler

// failpoint does nothing in a build for users. In a test build it may kill the replica: see failpoint_armed.go.
func failpoint(string, *Run) {}
