//go:build !linux

package proc

// ID returns "", because it is implemented only on Linux.
func ID() string { return "" }

// LifeOf returns [Unknown], because it is implemented only on Linux.
func LifeOf(string) Life { return Unknown }

// RemoveCgroup does nothing: cgroups exist only on Linux.
func RemoveCgroup(string) error { return nil }
