//go:build !failpoints || !unix

// Package failpoint lets tests kill a replica at a named point of its work.
package failpoint

import "time"

// Reach does nothing without the build tag failpoints. In a test build with the tag it can kill the replica: see failpoint_armed.go.
func Reach(string, string, time.Time) {}
