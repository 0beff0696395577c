package sdnotify

import (
	"time"

	"golang.org/x/sys/unix"
)

// monotonicTime returns CLOCK_MONOTONIC, which systemd compares with its own.
func monotonicTime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // every kernel that Go supports has it
	return time.Duration(now.Nano())
}
