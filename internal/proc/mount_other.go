//go:build !linux

package proc

// OnMount tells nothing.
func OnMount(string) string { return "" }
