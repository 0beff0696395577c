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

// RunID is the variable in the environment of a run's processes that identifies the run.
const RunID = "CRONCLAVE_RUN_ID"

// Process is what the kernel says of a process.
type Process struct {
	PID, Parent, Group int
	Start              uint64 // in clock ticks since the machine's; it distinguishes two processes that had the same number one after the other

	state byte
	flags uint64
	env   string // the address of its environment
}

// Dead returns whether the process has ended, reaped or not.
func (p Process) Dead() bool { return p.state == 'Z' || p.state == 'X' }

// Uninterruptible returns whether the process sleeps in the kernel and no signal wakes it.
func (p Process) Uninterruptible() bool { return p.state == 'D' }

// Kernel returns whether it is a thread of the kernel.
func (p Process) Kernel() bool { const flag = 0x00200000; return p.flags&flag != 0 }

// Executed returns whether the process has executed a program since it was forked: PF_FORKNOEXEC of the kernel's include/linux/sched.h.
func (p Process) Executed() bool { const flag = 0x40; return p.flags&flag == 0 }

// Of returns what the kernel says of a process; ok is false if it says nothing.
func Of(pid int) (p Process, ok bool) { return read(pid, make([]byte, statSize)) }

// All returns all processes of the machine, or of our pid namespace.
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
		if p, ok := read(pid, buffer); ok {
			all = append(all, p)
		}
	}
	return all, nil
}

// Children returns the children of this process, dead ones included. The kernel's shorter way to them (/proc/PID/task/TID/children) is optional and
// may miss some.
func Children() []Process { return ChildrenOf(os.Getpid()) }

// ChildrenOf returns the children of a process, dead ones included.
func ChildrenOf(parent int) []Process {
	all, _ := All()
	return slices.DeleteFunc(all, func(p Process) bool { return p.Parent != parent })
}

// Killed returns whether SIGKILL is pending for a process: then it executes no instruction of its own any more, however long it stays in the kernel.
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

// statSize is more than /proc/PID/stat has.
const statSize = 2048

// read reads /proc/PID/stat, in half the time that os.ReadFile takes.
func read(pid int, buffer []byte) (Process, bool) {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/stat", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Process{}, false
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buffer)
	if err != nil {
		return Process{}, false
	}
	return parse(pid, buffer[:n])
}

// parse reads "PID (NAME) STATE PARENT GROUP ...", where NAME may have anything in it. State, parent and group are in every kernel's; later fields that are
// missing are zero, since a process must not seem dead for want of them.
func parse(pid int, stat []byte) (Process, bool) {
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

// RunOf returns the run that a process was started for, by its environment; "" if there is none, or if we may not look into the
// process. It is not known while the process is between two programs.
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
		// In execve, and in a process that is dying but no zombie yet, there is no environment for a moment: the file is empty, or can't be opened
		// (ESRCH, in newer kernels). An empty one is told from that by its address.
		if p, ok := Of(pid); ok && !p.Dead() && p.env == "0" {
			return "", false
		}
	}
	return "", true
}
