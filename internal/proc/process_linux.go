package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// RunID is the environment variable with the id of the run to which a process belongs.
const RunID = "CRONCLAVE_RUN_ID"

// Process is the state of a process at one instant.
type Process struct {
	PID, Parent, Group int
	Start              uint64 // start time in clock ticks since boot, which distinguishes processes that had the same PID

	state byte
	flags uint64
	env   string // address of the environment
}

// Dead reports whether the process has exited. It may be unreaped.
func (p Process) Dead() bool { return p.state == 'Z' || p.state == 'X' }

// Uninterruptible reports whether the process is in uninterruptible sleep in the kernel.
func (p Process) Uninterruptible() bool { return p.state == 'D' }

// Kernel reports whether the process is a kernel thread.
func (p Process) Kernel() bool { const flag = 0x00200000; return p.flags&flag != 0 }

// Executed reports whether the process has executed a program since its fork. flag is PF_FORKNOEXEC of the kernel's include/linux/sched.h.
func (p Process) Executed() bool { const flag = 0x40; return p.flags&flag == 0 }

// Of returns the state of a process. ok is false if the process does not exist or is hidden.
func Of(pid int) (p Process, ok bool) { return readStat(pid, make([]byte, statSize)) }

// All returns all processes of this PID namespace that are not hidden.
func All() ([]Process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []Process
	buffer := make([]byte, statSize)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readStat(pid, buffer); ok {
			all = append(all, p)
		}
	}
	return all, nil
}

// Children returns the children of this process, including dead ones. It does not read /proc/PID/task/TID/children. That file is faster, but optional in
// kernels, and may miss children.
func Children() []Process { return ChildrenOf(os.Getpid()) }

// ChildrenOf returns the children of a process, including dead ones.
func ChildrenOf(parent int) []Process {
	all, _ := All()
	return slices.DeleteFunc(all, func(p Process) bool { return p.Parent != parent })
}

// Killed reports whether SIGKILL is pending for a process. Such a process executes no further instruction of its own, even if it stays in the kernel for
// long.
func Killed(pid int) bool {
	const bit = 1 << (unix.SIGKILL - 1)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range bytes.Lines(status) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		if string(name) != "SigPnd" && string(name) != "ShdPnd" {
			continue
		}
		if set, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64); err == nil && set&bit != 0 {
			return true
		}
	}
	return false
}

// statSize is more than the length of any /proc/PID/stat.
const statSize = 2048

// readStat reads /proc/PID/stat. It takes half the time that os.ReadFile would take.
func readStat(pid int, buffer []byte) (Process, bool) {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/stat", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Process{}, false
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buffer)
	if err != nil {
		return Process{}, false
	}
	return parseStat(pid, buffer[:n])
}

// parseStat parses "PID (NAME) STATE PARENT GROUP ...". NAME may contain any character. The fields state, parent and group are required, because every kernel
// has them. Later fields are zero if they are missing.
func parseStat(pid int, stat []byte) (Process, bool) {
	const state, parent, group, flags, start, env = 0, 1, 2, 6, 19, 47
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= group {
		return Process{}, false
	}
	p := Process{PID: pid, state: fields[state][0]}
	var err1, err2 error
	p.Parent, err1 = strconv.Atoi(string(fields[parent]))
	p.Group, err2 = strconv.Atoi(string(fields[group]))
	if len(fields) > flags {
		p.flags, _ = strconv.ParseUint(string(fields[flags]), 10, 64)
	}
	if len(fields) > start {
		p.Start, _ = strconv.ParseUint(string(fields[start]), 10, 64)
	}
	if len(fields) > env {
		p.env = string(fields[env])
	}
	return p, errors.Join(err1, err2) == nil
}

// RunOf returns the run id in the environment of a process. id is "" if the environment has none, or if this process may not read it. known is false while
// the process executes a program.
func RunOf(pid int) (id string, known bool) {
	for range 2 {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		for entry := range bytes.SplitSeq(env, []byte{0}) {
			if id, ok := bytes.CutPrefix(entry, []byte(RunID+"=")); ok {
				return string(id), true
			}
		}
		if len(env) > 0 || err != nil && !errors.Is(err, unix.ESRCH) {
			return "", true
		}
		// During execve, and in a dying process that is not a zombie yet, there is no environment. The file is then empty or, in newer kernels, can't be
		// opened (ESRCH). The address shows whether the environment is missing or only empty.
		if p, ok := Of(pid); ok && !p.Dead() && p.env == "0" {
			return "", false
		}
	}
	return "", true
}
