//go:build !linux

package proc

import "path/filepath"

// OnMount returns "": mounts are only known on Linux.
func OnMount(string) string { return "" }

// MountPoint returns "": mounts are only known on Linux.
func MountPoint(string) string { return "" }

// AbsolutePath returns a relative path behind the working directory, and any other path unchanged.
func AbsolutePath(path string) string {
	if absolute, err := filepath.Abs(path); err == nil && !filepath.IsAbs(path) {
		return absolute
	}
	return path
}
