//go:build !linux

// Package hungfs is a file system for tests on Linux.
package hungfs

// Serve returns false: it is only implemented on Linux.
func Serve() bool { return false }
