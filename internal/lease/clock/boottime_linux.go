package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Boot returns a clock that reads CLOCK_BOOTTIME: nothing steps it, and unlike Go's monotonic clock it goes on in suspend, so a holder that slept for
// an hour does not believe in its lease.
func Boot() func() time.Duration {
	start := time.Now()
	return func() time.Duration {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
			return time.Since(start)
		}
		return time.Duration(now.Nano())
	}
}
