//go:build race

package testtier

// RaceEnabled reports whether the race detector is on.
const RaceEnabled = true
