package safefile

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// withRights calls f with the rights of a user, or with an error if they can't be had. In Linux, users and capabilities belong to a thread (C libraries hide
// this). So f runs on a thread of its own, which ends afterwards. The runtime starts no other thread from a locked one.
func withRights(who *Identity, f func(error)) {
	if who == nil {
		f(nil)
		return
	}
	runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
	if unix.Gettid() == os.Getpid() {
		// The main thread does not end, and ps shows its user as the user of the process. Block it, and use another thread.
		defer runtime.UnlockOSThread()
		over := make(chan struct{})
		go func() {
			defer close(over)
			withRights(who, f)
		}()
		<-over
		return
	}
	f(takeRights(who))
}

// takeRights gives the rights of a user to the calling thread, and takes all others from it. A process that may not do so keeps its own rights.
func takeRights(who *Identity) error {
	switch errno := setIDs(who); {
	case errno == unix.EPERM && os.Geteuid() != 0:
		return nil
	case errno != 0:
		return fmt.Errorf("take the rights of the user %d: %w", who.UID, errno)
	case who.UID == 0:
		return nil
	}
	// The kernel has dropped the capabilities that bypass the rights to files. The others are not needed.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop the capabilities: %w", err)
	}
	return nil
}

// setIDs changes the user of this thread only, by raw system calls; the functions of package syscall change all threads. It sets only the ids that
// are used to open files: with another real or saved user, that user could signal this thread and kill the whole process.
func setIDs(who *Identity) syscall.Errno {
	if _, _, errno := unix.RawSyscall(setgroups, uintptr(len(who.Groups)), uintptr(unsafe.Pointer(unsafe.SliceData(who.Groups))), 0); errno != 0 {
		return errno
	}
	if errno := setFS(setfsgid, uintptr(who.GID)); errno != 0 {
		return errno
	}
	return setFS(setfsuid, uintptr(who.UID))
}

// setFS sets a file system id of this thread. The call returns the previous id and no error, so setFS calls it again with an invalid id to check the
// result.
func setFS(call, id uintptr) syscall.Errno {
	const none = 1<<32 - 1
	_, _, _ = unix.RawSyscall(call, id, 0, 0)
	if now, _, _ := unix.RawSyscall(call, none, 0, 0); now != id {
		return unix.EPERM
	}
	return 0
}

// checkReadable returns nil: the kernel has opened the file with the user's rights.
func checkReadable(*unix.Stat_t, *Identity) error { return nil }
