//go:build !linux

package proc

// ID returns "": it is only implemented on Linux.
func ID() string { return "" }

// LifeOf returns [Unknown]: it is only implemented on Linux.
func LifeOf(string) Life { return Unknown }

// RemoveCgroup does nothing: cgroups exist only on Linux.
func RemoveCgroup(string) error { return nil }
