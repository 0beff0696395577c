//go:build !linux && !darwin

package clock

import "time"

// Boot returns Go's monotonic clock, which on some systems stops while the machine is suspended.
func Boot() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
