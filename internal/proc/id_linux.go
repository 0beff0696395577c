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

// ID identifies this process among all that this kernel has run since it was booted; "" where that can't be told. A number of a process means
// something in its namespace only, and is used again.
func ID() string {
	where, pid := kernelAndNamespace(), os.Getpid()
	self, ok := Of(pid)
	if where == "" || !ok {
		return ""
	}
	return fmt.Sprintf("%s/%d/%d", where, pid, self.Start)
}

// Program returns the name of the program that a process executes, as the kernel keeps it: 15 bytes at most, which the process may change.
func Program(pid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return "?"
	}
	return strings.TrimSuffix(string(name), "\n")
}

// kernelAndNamespace is where numbers of processes are those that this process sees; "" where that can't be told.
func kernelAndNamespace() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, err2 := os.Readlink("/proc/self/ns/pid")
	if errors.Join(err, err2) != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + "/" + namespace
}

// LifeOf returns whether a process lives, by its ID.
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
	case !ok: // it may be hidden from this user
		return Unknown
	case !now.Dead() && strconv.FormatUint(now.Start, 10) == start:
		return Alive
	}
	return Gone
}
