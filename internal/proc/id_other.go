//go:build !linux

package proc

// ID is not told here.
func ID() string { return "" }

// LifeOf returns Unknown: there is no /proc on this system.
func LifeOf(string) Life { return Unknown }

// RemoveCgroup does nothing: there are none.
func RemoveCgroup(string) error { return nil }
