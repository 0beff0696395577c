//go:build !linux

package proc

import (
	"path/filepath"
)

// ID returns "", because it is implemented only on Linux.
func ID() string { return "" }

// LifeOf returns [Unknown], because it is implemented only on Linux.
func LifeOf(string) Life { return Unknown }

// RemoveCgroup does nothing: cgroups exist only on Linux.
func RemoveCgroup(string) error { return nil }

// OnMount returns "", because it is implemented only on Linux.
func OnMount(string) string { return "" }

// MountPoint returns "", because it is implemented only on Linux.
func MountPoint(string) string { return "" }

// AbsolutePath puts the working directory before a relative path, and returns any other path unchanged.
func AbsolutePath(path string) string {
	if absolute, err := filepath.Abs(path); err == nil && !filepath.IsAbs(path) {
		return absolute
	}
	return path
}
