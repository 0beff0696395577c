package command

import (
	"errors"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// start starts the command, with a umask of its own if there is one.
//
// The umask belongs to a process as a whole, so setting it around the start would let every file that is
// created meanwhile have it, in any goroutine. On Linux a thread can have one for itself, after
// unshare(CLONE_FS), and a child inherits that of the thread that forks it. The thread is never used again:
// it ends with its goroutine. Where unshare is refused, as by the default seccomp profile of some container
// engines, a shell sets the umask.
func start(cmd *exec.Cmd, umask *uint32) error {
	if umask == nil {
		return cmd.Start()
	}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return errNotUnshared
		}
		unix.Umask(int(*umask))
		return cmd.Start()
	})
	if errors.Is(err, errNotUnshared) {
		throughShell(cmd, *umask)
		return cmd.Start()
	}
	return err
}

var errNotUnshared = errors.New("the thread can't have a umask of its own")

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
