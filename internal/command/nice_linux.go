package command

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// setNice sets the priority of this thread, and of what it starts.
func setNice(n int) error {
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, n); err != nil {
		return niceError(n, err)
	}
	return nil
}

// checkNice finds out by trying: a capability permits it, or a resource limit.
func checkNice(n int) error {
	return onThread(func() error { return setNice(n) })
}

// onThread calls f on a thread that nothing else runs on, before or after.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			done <- f()
			return // locked, so the thread ends
		}
		// The main thread stands for the process in /proc and never ends: hold it, and use another.
		defer runtime.UnlockOSThread()
		done <- onThread(f)
	}()
	return <-done
}
