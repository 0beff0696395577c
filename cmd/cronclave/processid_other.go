//go:build !linux

package main

// processID is not told here.
func processID() string { return "" }

// lifeOf can't tell.
func lifeOf(string) life { return unknownLife }
