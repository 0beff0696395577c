package process

import (
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// childInfo is the beginning of siginfo_t as waitid fills it in. Like the union in C, the fields after code are aligned to a pointer.
type childInfo struct {
	_, _, code int32
	_          [unsafe.Sizeof(uintptr(0))/4 - 1]int32
	_, _       int32
	status     int32
}

// watchStops handles each stop of the command until the command is dead. It does not reap the command.
func (t *terminal) watchStops(leader int) {
	const stopped = 5 // CLD_STOPPED of <signal.h>
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, leader, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		child := (*childInfo)(unsafe.Pointer(&info))
		if err != nil || child.code != stopped {
			return
		}
		by := syscall.Signal(child.status)
		_ = unix.Waitid(unix.P_PID, leader, &info, unix.WSTOPPED|unix.WNOHANG, nil) // consume the event; otherwise waitid would return it again
		t.handleStop(by)
	}
}
