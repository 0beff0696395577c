package warden

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime returns CLOCK_BOOTTIME. This clock can't be set, and continues during suspend. It is the same for all processes of a machine.
func bootTime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // every kernel that Go supports has it
	return time.Duration(now.Nano())
}
