//go:build !linux

package main

// protectMemory does nothing, because only Linux has this protection.
func protectMemory() {}
