//go:build !linux && !darwin

package clock

import "time"

// Boot returns Go's monotonic clock, which stands still in suspend on some systems.
func Boot() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
