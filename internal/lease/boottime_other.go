//go:build !linux && !darwin

package lease

import "time"

// BootClock returns Go's monotonic clock, which on some systems stops while the machine is suspended.
func BootClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
