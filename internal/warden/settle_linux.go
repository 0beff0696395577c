package warden

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// shieldHelper makes the helper small and hard to kill by accident. It leaves the working directory, closes inherited files, changes the process name so that
// killall does not hit it together with the replica, lowers the risk of being killed when memory is short, and keeps debuggers of the same user away.
// Failures are ignored. The prctl must come last, because after it the helper's files in /proc belong to root.
func shieldHelper() {
	_ = os.Chdir("/")
	closeInherited()
	_ = os.WriteFile("/proc/self/comm", []byte("warden"), 0)
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-900"), 0)
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// closeInherited closes the files that the replica inherited without the close-on-exec flag. Go sets the flag on all files that it opens itself.
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
