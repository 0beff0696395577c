//go:build linux || darwin

package replica

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// limitsOfProcess returns the limits in effect. At its start the Go runtime raised the limit of open files to the maximum. Root has no limit of processes.
func limitsOfProcess() (l resourceLimits) {
	l.files = limitOf(unix.RLIMIT_NOFILE)
	if os.Geteuid() != 0 {
		l.processes = limitOf(unix.RLIMIT_NPROC)
	}
	return l
}

func limitOf(resource int) int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(resource, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return 0
	}
	return int(limit.Cur)
}
