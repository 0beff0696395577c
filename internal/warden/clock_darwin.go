package warden

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime reads CLOCK_MONOTONIC, which runs on in suspend here. All processes of a machine read the same.
func bootTime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it can't fail
	return time.Duration(now.Nano())
}
