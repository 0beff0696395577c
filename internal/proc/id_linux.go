package proc

import (
	"bytes"
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
	start, running := startOf(pid)
	if where == "" || !running {
		return ""
	}
	return fmt.Sprintf("%s/%d/%s", where, pid, start)
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
	switch now, running := startOf(pid); {
	case now == "": // it may be hidden from this user
		return Unknown
	case running && now == start:
		return Alive
	}
	return Gone
}

// startOf is when a process was started, in ticks since the kernel was booted, "" if that can't be read; running is false for one that is dead and not reaped.
func startOf(pid int) (start string, running bool) {
	const state, started = 0, 19 // of the fields behind the name, which may have anything in it
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if err != nil || len(fields) <= started {
		return "", false
	}
	return string(fields[started]), !bytes.ContainsAny(fields[state], "ZX")
}
