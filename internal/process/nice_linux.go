package process

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// setNice sets the priority of this thread and of the processes that it starts.
func setNice(n int) error {
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, n); err != nil {
		return niceError(n, err)
	}
	return nil
}

// checkNice tests on a separate thread whether the priority can be set, which takes a capability or a resource limit.
func checkNice(n int) error {
	return onThread(func() error { return setNice(n) })
}

// onThread calls f on a thread that runs nothing else before or afterwards.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			done <- f()
			return // the goroutine is still locked, so the thread ends
		}
		// The main thread represents the process in /proc and never ends. Keep it busy, and use another thread.
		defer runtime.UnlockOSThread()
		done <- onThread(f)
	}()
	return <-done
}
