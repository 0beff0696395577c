//go:build !linux

// Package hungfs is a file system for tests on Linux.
package hungfs

// Serve returns false, because it is implemented only on Linux.
func Serve() bool { return false }
