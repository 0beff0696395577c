package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootClock returns a clock that reads CLOCK_BOOTTIME, which is never stepped. Unlike Go's monotonic clock, it also counts while the machine is
// suspended, so a holder notices after a suspend that its lease has expired.
func BootClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
			return time.Since(start)
		}
		return time.Duration(now.Nano())
	}
}
