package warden

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime returns CLOCK_MONOTONIC, which continues during suspend on macOS. It is the same for all processes of a machine.
func bootTime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it can't fail
	return time.Duration(now.Nano())
}
