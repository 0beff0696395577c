package proc

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ID returns a text that identifies this process among all processes since the boot of this kernel. A PID alone is not enough, because it is valid in one PID
// namespace and is reused. ID returns "" if the identity can't be determined.
func ID() string {
	where, pid := kernelAndNamespace(), os.Getpid()
	self, ok := Of(pid)
	if where == "" || !ok {
		return ""
	}
	return fmt.Sprintf("%s/%d/%d", where, pid, self.Start)
}

// Program returns the program name of a process, or "?". The kernel keeps at most 15 bytes of the name, and the process may change them.
func Program(pid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return "?"
	}
	return strings.TrimSuffix(string(name), "\n")
}

// kernelAndNamespace identifies the boot of the kernel and the PID namespace of this process. It returns "" if one of them can't be determined.
func kernelAndNamespace() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, err2 := os.Readlink("/proc/self/ns/pid")
	if errors.Join(err, err2) != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + "/" + namespace
}

// LifeOf returns the state of the process with an [ID].
func LifeOf(id string) Life {
	place, start := path.Split(id)
	where, number := path.Split(strings.TrimSuffix(place, "/"))
	pid, err := strconv.Atoi(number)
	if here := kernelAndNamespace(); here == "" || where != here+"/" || err != nil || pid <= 0 {
		return Unknown
	}
	if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return Gone
	}
	switch now, ok := Of(pid); {
	case !ok: // the process may be hidden from this user
		return Unknown
	case !now.Dead() && strconv.FormatUint(now.Start, 10) == start:
		return Alive
	}
	return Gone
}
