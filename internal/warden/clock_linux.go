package warden

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime reads CLOCK_BOOTTIME, which nothing steps and which runs on in suspend. All processes of a machine read the same.
func bootTime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // every kernel that Go runs on has it
	return time.Duration(now.Nano())
}
