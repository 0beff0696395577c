//go:build !linux && !darwin

package locking

import "time"

// localClock is Go's monotonic clock, which on some systems stands still in suspend.
func localClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
