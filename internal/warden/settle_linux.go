package warden

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// settle makes the helper small and hard to hit: nothing open but its pipes, no folder held, another name than the replica's
// (so that killall does not take both), last in the row when memory is short, and out of reach of debuggers of the same user. Each is
// done as far as it is allowed. The last comes last: the kernel then gives the helper's files in /proc to root.
func settle() {
	_ = os.Chdir("/")
	closeInherited()
	_ = os.WriteFile("/proc/self/comm", []byte("warden"), 0)
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-900"), 0)
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// closeInherited closes what the replica itself had inherited, without a mark that it is to be closed in other programs. All
// that Go opens has that mark.
func closeInherited() {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, f := range files {
		fd, err := strconv.Atoi(f.Name())
		if err != nil || fd <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}
