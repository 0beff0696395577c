//go:build !linux

package proc

import "path/filepath"

// OnMount returns "": it is only implemented on Linux.
func OnMount(string) string { return "" }

// MountPoint returns "": it is only implemented on Linux.
func MountPoint(string) string { return "" }

// AbsolutePath returns a relative path with the working directory before it, and any other path unchanged.
func AbsolutePath(path string) string {
	if absolute, err := filepath.Abs(path); err == nil && !filepath.IsAbs(path) {
		return absolute
	}
	return path
}
