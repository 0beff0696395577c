//go:build !linux

package proc

// OnMount returns "": mounts are only known on Linux.
func OnMount(string) string { return "" }

// MountPoint returns "": mounts are only known on Linux.
func MountPoint(string) string { return "" }
