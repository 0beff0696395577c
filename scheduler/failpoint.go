//go:build !failpoints || !unix

package scheduler

// failpoint does nothing without the build tag failpoints. In a test build with the tag it can kill the replica: see failpoint_armed.go.
func failpoint(string, *Run) {}
