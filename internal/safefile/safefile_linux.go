package safefile

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// withRights calls f with the rights of a user. If the rights can't be taken, f gets an error. In Linux, each thread has its own user and capabilities (C
// libraries hide this). So f runs on a separate thread, which ends afterwards. No other thread gets the rights, because the Go runtime starts no thread from a
// locked one.
func withRights(who *Identity, f func(error)) {
	if who == nil {
		f(nil)
		return
	}
	runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
	if unix.Gettid() == os.Getpid() {
		// The main thread does not end, and ps shows its user as the user of the process. So block it, and use another thread.
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

// takeRights gives the calling thread the rights of a user and no others. A process that may not change its user keeps its own rights.
func takeRights(who *Identity) error {
	switch errno := setIDs(who); {
	case errno == unix.EPERM && os.Geteuid() != 0:
		return nil
	case errno != 0:
		return fmt.Errorf("take the rights of the user %d: %w", who.UID, errno)
	case who.UID == 0:
		return nil
	}
	// The kernel has dropped the capabilities that bypass file permissions. Drop the other capabilities too, because they are not needed.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop the capabilities: %w", err)
	}
	return nil
}

// setIDs changes the user of this thread only. It makes raw system calls, because the functions of package syscall change all threads. It sets only the ids
// that are used to open files. If it set the real or saved user as well, that user could signal this thread and kill the whole process.
func setIDs(who *Identity) syscall.Errno {
	if _, _, errno := unix.RawSyscall(setgroups, uintptr(len(who.Groups)), uintptr(unsafe.Pointer(unsafe.SliceData(who.Groups))), 0); errno != 0 {
		return errno
	}
	if errno := setFS(setfsgid, uintptr(who.GID)); errno != 0 {
		return errno
	}
	return setFS(setfsuid, uintptr(who.UID))
}

// setFS sets a file system id of this thread. The system call returns the previous id and no error. To check the result, setFS calls it again with an invalid
// id.
func setFS(call, id uintptr) syscall.Errno {
	const none = 1<<32 - 1
	_, _, _ = unix.RawSyscall(call, id, 0, 0)
	if now, _, _ := unix.RawSyscall(call, none, 0, 0); now != id {
		return unix.EPERM
	}
	return 0
}

// checkReadable returns nil, because the kernel has checked the user's rights when the file was opened.
func checkReadable(*unix.Stat_t, *Identity) error { return nil }

func mountedReadOnly(fs *unix.Statfs_t) bool { return fs.Flags&unix.ST_RDONLY != 0 }
