//go:build !race

// Package race lets tests know whether the race detector is on. It makes computation about ten times as slow, so tests that only compute do a part of
// their work under it, and the whole in `make test-long`.
package race

// Enabled reports whether the race detector is on.
const Enabled = false
