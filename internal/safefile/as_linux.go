package safefile

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// as calls f with a user's rights; f gets an error where they can't be had. Users and capabilities belong to a thread in
// Linux, whatever its C library makes of that, so f runs on a thread of its own that ends with it. The runtime starts no
// other thread from one that is locked.
func as(who *Identity, f func(error)) {
	if who == nil {
		f(nil)
		return
	}
	runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
	if unix.Gettid() == os.Getpid() {
		// The first thread does not end, and ps shows its user as the process's. It waits, so that another one does the work.
		defer runtime.UnlockOSThread()
		over := make(chan struct{})
		go func() {
			defer close(over)
			as(who, f)
		}()
		<-over
		return
	}
	f(become(who))
}

// become gives the calling thread a user's rights and takes all others from it. A process that may not do so keeps its own.
func become(who *Identity) error {
	switch errno := setIDs(who); {
	case errno == unix.EPERM && os.Geteuid() != 0:
		return nil
	case errno != 0:
		return fmt.Errorf("take the rights of the user %d: %w", who.UID, errno)
	case who.UID == 0:
		return nil
	}
	// The kernel has dropped those that pass over the rights to files; none of the others is of use here.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop the capabilities: %w", err)
	}
	return nil
}

// setIDs makes the system calls on this thread alone. (Those of package syscall are for all threads.) It changes only the ids that open files: with
// another real or saved user, that user could signal this thread, and end the whole process by that.
func setIDs(who *Identity) syscall.Errno {
	if _, _, errno := unix.RawSyscall(setgroups, uintptr(len(who.Groups)), uintptr(unsafe.Pointer(unsafe.SliceData(who.Groups))), 0); errno != 0 {
		return errno
	}
	if errno := setFS(setfsgid, uintptr(who.GID)); errno != 0 {
		return errno
	}
	return setFS(setfsuid, uintptr(who.UID))
}

// setFS sets the id that files are opened with. The call returns the id before it and no error, so it is asked again, with an id that is none.
func setFS(call, id uintptr) syscall.Errno {
	const none = 1<<32 - 1
	_, _, _ = unix.RawSyscall(call, id, 0, 0)
	if now, _, _ := unix.RawSyscall(call, none, 0, 0); now != id {
		return unix.EPERM
	}
	return 0
}

// permitted has nothing to add: the kernel has opened the file with the user's rights.
func permitted(*unix.Stat_t, *Identity) error { return nil }
