package starter

import (
	"encoding/binary"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// A starter process runs Main in this function, before main. Go initialises a package after its imports, and otherwise in the order of package paths. This
// package imports little, so it is initialised early. The initialisation of the rest of the program would take several times as long as a start.
func init() { //nolint:gochecknoinits // see above
	if len(os.Args) == 1 && os.Args[0] == Name {
		syscall.Exit(Main())
	}
}

// Main carries out one order and sends the reply. It returns only if the order is damaged or the channel fails. Otherwise the process exits when the replica
// closes the channel.
func Main() (exitCode int) {
	runtime.LockOSThread() // priority and privileges belong to a thread
	syscall.CloseOnExec(Channel)
	syscall.CloseOnExec(Cgroup)
	order, err := receiveOrder()
	if err != nil {
		return 1
	}
	// This goroutine can end the process even while the fork waits for a hanging execve.
	go func() {
		_, _ = readChannel(make([]byte, 1))
		syscall.Exit(0)
	}()
	if _, err := syscall.Write(Channel, order.carryOut().Bytes()); err != nil {
		return 1
	}
	select {}
}

func receiveOrder() (*Order, error) {
	length := make([]byte, 4)
	if err := readFull(length); err != nil {
		return nil, err
	}
	text := make([]byte, binary.LittleEndian.Uint32(length))
	if err := readFull(text); err != nil {
		return nil, err
	}
	return parseOrder(text)
}

func readFull(b []byte) error {
	for len(b) > 0 {
		n, err := readChannel(b)
		if err != nil {
			return err
		}
		if n <= 0 {
			return errOrder
		}
		b = b[n:]
	}
	return nil
}

func readChannel(b []byte) (n int, err error) {
	for {
		if n, err = syscall.Read(Channel, b); err != syscall.EINTR { //nolint:errorlint // importing package errors would slow each start
			return n, err
		}
	}
}

// carryOut starts the command. It sets umask, priority and privileges on this thread, and the forked process inherits them.
func (o *Order) carryOut() Reply {
	if o.Nice != nil {
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, *o.Nice); err != nil {
			return refusalReply(Nice, err)
		}
	}
	if o.Umask != nil {
		syscall.Umask(int(*o.Umask))
	}
	if err := o.dropPrivileges(); err != nil {
		return refusalReply(Privileges, err)
	}
	attr := &syscall.ProcAttr{Dir: o.Dir, Env: o.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true, Credential: o.Credential}}
	if o.InCgroup {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, Cgroup
	}
	pid, err := syscall.ForkExec(o.Path, o.Argv, attr)
	if err != nil {
		return refusalReply(Start, err)
	}
	return Reply{PID: pid}
}

func refusalReply(step Step, err error) Reply {
	errno, ok := err.(syscall.Errno) //nolint:errorlint // package syscall returns only Errno
	if !ok {
		errno = syscall.EINVAL
	}
	return Reply{Step: step, Error: errno}
}

// Numbers of prctl(2) and capabilities(7) that package syscall lacks. Package x/sys/unix has them, but importing it would delay the initialisation of this
// package.
const (
	setNoNewPrivs = 38
	capAmbient    = 47
	clearAll      = 4
	capVersion3   = 0x20080522
)

// dropPrivileges drops privileges of this thread, which the forked process inherits. A change of the user clears permitted and effective capabilities, but not
// inheritable ones. It clears ambient capabilities only if the old user is root. So if the replica's systemd unit sets AmbientCapabilities=, a job could use
// the ambient capabilities to become any user. The bounding set stays unchanged: it only limits the capabilities that programs get when they are executed, and
// with no_new_privs programs get none.
func (o *Order) dropPrivileges() error {
	if o.DropInheritable {
		if err := dropInheritable(); err != nil {
			return err
		}
	}
	if o.NoNewPrivs {
		return prctl(setNoNewPrivs, 1)
	}
	return nil
}

func prctl(what, value uintptr) error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, what, value, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func dropInheritable() error {
	if err := prctl(capAmbient, clearAll); err != nil && err != syscall.EINVAL { //nolint:errorlint // Linux before 4.3 has no ambient capabilities (EINVAL)
		return err
	}
	header := struct {
		version uint32
		pid     int32
	}{version: capVersion3}
	var sets [2]struct{ effective, permitted, inheritable uint32 } // version 3 has 64 capability bits, in two elements
	call := func(number uintptr) error {
		if _, _, errno := syscall.RawSyscall(number, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets[0])), 0); errno != 0 {
			return errno
		}
		return nil
	}
	if err := call(syscall.SYS_CAPGET); err != nil {
		return err
	}
	sets[0].inheritable, sets[1].inheritable = 0, 0
	return call(syscall.SYS_CAPSET)
}
