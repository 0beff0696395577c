//go:build !linux && !darwin

package clock

import "time"

// Boot returns Go's monotonic clock, which on some systems stands still in suspend.
func Boot() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
