package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

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
	env   string // address of the environment in memory, "0" if there is none
}

// Dead reports whether the process has exited. It may be unreaped.
func (p Process) Dead() bool { return p.state == 'Z' || p.state == 'X' }

// Uninterruptible reports whether the process is in uninterruptible sleep in the kernel.
func (p Process) Uninterruptible() bool { return p.state == 'D' }

// Kernel reports whether the process is a kernel thread. flag is PF_KTHREAD of the kernel's include/linux/sched.h.
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

// Children returns the children of this process, including dead ones. It does not use the faster /proc/PID/task/TID/children, because kernels may lack this
// file, and the file may lack children.
func Children() []Process { return ChildrenOf(os.Getpid()) }

// ChildrenOf returns the children of a process, including dead ones.
func ChildrenOf(parent int) []Process {
	all, _ := All()
	return slices.DeleteFunc(all, func(p Process) bool { return p.Parent != parent })
}

// Killed reports whether SIGKILL is pending for a process. Such a process returns to no instruction of its program, even if it hangs in the kernel for a long
// time.
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

// RunOf returns the run id in the environment of a process. id is "" if the environment has none, or if this process may not read the environment. known is
// false while the process has no environment: during execve, and while it dies.
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
		// opened (ESRCH). If there is no environment, its address is 0; an empty environment has an address.
		if p, ok := Of(pid); ok && !p.Dead() && p.env == "0" {
			return "", false
		}
	}
	return "", true
}

// ID returns a text that identifies this process among all processes since the boot of this kernel. A PID alone is not enough, because a PID is valid only in
// its PID namespace, and is reused. ID returns "" if the identity can't be determined.
func ID() string {
	where, pid := kernelAndNamespace(), os.Getpid()
	self, ok := Of(pid)
	if where == "" || !ok {
		return ""
	}
	return fmt.Sprintf("%s/%d/%d", where, pid, self.Start)
}

// Program returns the program name of a process, or "?". The kernel keeps at most 15 bytes of the name, and the process may change its name.
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

// Populated reports whether a living process is in a cgroup or below it. Its arguments are the result of reading cgroup.events. A missing file means that no
// process is left, because a cgroup with a process can't be removed.
func Populated(events []byte, err error) bool {
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV)
	}
	return bytes.Contains(events, []byte("populated 1"))
}

// CgroupProcesses returns the PIDs in a cgroup and below it.
func CgroupProcesses(dir string) map[int]bool {
	found := map[int]bool{}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return nil
		}
		list, _ := os.ReadFile(path)
		for _, field := range strings.Fields(string(list)) {
			// PID 0 stands for a process outside this PID namespace.
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				found[pid] = true
			}
		}
		return nil
	})
	return found
}

// CgroupsBelow returns the names of the cgroups directly below a cgroup.
func CgroupsBelow(dir string) (names []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// RemoveCgroup removes an empty cgroup and the cgroups below it. It searches for cgroups below only if the first removal fails, because a run rarely creates
// any. It returns nil if the cgroup does not exist.
func RemoveCgroup(dir string) error {
	err := unix.Rmdir(dir)
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY) {
		for _, name := range CgroupsBelow(dir) {
			_ = RemoveCgroup(filepath.Join(dir, name))
		}
		err = unix.Rmdir(dir)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("rmdir %s: %w", dir, err)
	}
	return nil
}

// Mount is a mounted file system.
type Mount struct {
	// Root is the folder of the file system that is visible at the mount point. Point is the mount point.
	Root, Point  string
	Type, Source string
}

// ParseMounts parses the text of /proc/PID/mountinfo. Each line has an id, the parent's id, the device, the root, the mount point and options, then a dash,
// the type, the source and further fields.
func ParseMounts(mountinfo string) (all []Mount) {
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		fields, more := strings.Fields(before), strings.Fields(after)
		if ok && len(fields) >= 6 && len(more) >= 2 {
			all = append(all, Mount{unescapeOctal(fields[3]), unescapeOctal(fields[4]), more[0], unescapeOctal(more[1])})
		}
	}
	return all
}

// unescapeOctal replaces the octal escapes of mountinfo for white space and backslashes.
func unescapeOctal(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return regexp.MustCompile(`\\[0-7]{3}`).ReplaceAllStringFunc(s, func(e string) string {
		n, _ := strconv.ParseUint(e[1:], 8, 8)
		return string([]byte{byte(n)})
	})
}

// OnMount returns " (mount POINT, TYPE SOURCE)" for a path on a mount, and "" for a path on the root file system. It reads only /proc and does not follow
// symbolic links, so it can't hang.
func OnMount(path string) string {
	on := findMount(path)
	if on.Point == "" {
		return ""
	}
	return fmt.Sprintf(" (mount %s, %s %s)", on.Point, on.Type, on.Source)
}

// MountPoint returns the mount point of a path, or "" for a path on the root file system. Like [OnMount], it reads only /proc.
func MountPoint(path string) string { return findMount(path).Point }

// AbsolutePath puts the working directory before a relative path, and returns any other path unchanged. It reads only /proc. [filepath.Abs] would ask the
// file system of the working directory, which may not answer.
func AbsolutePath(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	folder, err := os.Readlink("/proc/self/cwd")
	if err != nil {
		return path
	}
	return folder + "/" + path // filepath.Join would resolve "..", but LINK/.. is the parent of the link's target
}

// findMount returns the mount of a path, or the zero value for a path on the root file system.
func findMount(path string) (on Mount) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Mount{}
	}
	path = filepath.Clean(AbsolutePath(path))
	for _, m := range ParseMounts(string(text)) {
		rest, below := strings.CutPrefix(path, m.Point)
		if below && (rest == "" || rest[0] == '/') && len(m.Point) >= len(on.Point) { // if two mounts have the same mount point, the later one is visible
			on = m
		}
	}
	if on.Point == "/" {
		return Mount{}
	}
	return on
}
