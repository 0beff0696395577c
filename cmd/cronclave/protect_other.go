//go:build !linux

package main

// protectMemory does nothing: only Linux lets a process hide its environment.
func protectMemory() {}
