package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootClock returns a clock that reads CLOCK_MONOTONIC. On macOS it also counts while the machine is suspended, and is the same in all processes.
func BootClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			return time.Since(start)
		}
		return time.Duration(now.Nano())
	}
}
