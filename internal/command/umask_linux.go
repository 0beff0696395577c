package command

import (
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// start starts the command, with a umask, a priority and privileges of its own if there are any.
//
// The umask belongs to a process as a whole, so setting it around the start would let every file that is
// created meanwhile have it, in any goroutine. On Linux a thread can have one for itself, after
// unshare(CLONE_FS), and a child inherits that of the thread that forks it. The thread is never used again:
// it ends with its goroutine. Where unshare is refused, as by the default seccomp profile of some container
// engines, a shell sets the umask. A priority, capabilities and no_new_privs are a thread's own in any case.
func start(cmd *exec.Cmd, s *Spec) error {
	if s.Umask == nil && s.Nice == nil && s.User == "" && !s.NoNewPrivs {
		return cmd.Start()
	}
	return onThread(func() error {
		if s.Nice != nil {
			if err := setNice(*s.Nice); err != nil {
				return err
			}
		}
		if s.Umask != nil {
			if unix.Unshare(unix.CLONE_FS) == nil {
				unix.Umask(int(*s.Umask))
			} else {
				maskThroughShell(cmd, *s.Umask)
			}
		}
		if err := s.dropPrivileges(); err != nil {
			return err
		}
		return cmd.Start()
	})
}

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
