package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
)

func (l Limits) neededControllers() (names []string) {
	if l.Memory > 0 {
		names = append(names, "memory")
	}
	if l.Pids > 0 {
		names = append(names, "pids")
	}
	return names
}

// allowLimits enables the controllers that the limits need, in the cgroups of runs.
func (c *cells) allowLimits(l Limits) error {
	err := c.reason
	if c.base != nil {
		err = c.base.enableControllers(l.neededControllers())
	}
	if err != nil {
		return fmt.Errorf("%w: %w (limits need a cgroup v2 that only this replica uses, with the controllers; a systemd service with "+
			"Delegate=yes has one)", ErrLimits, err)
	}
	return nil
}

// enableControllers enables the controllers in the cgroups of runs, two levels below this process's own cgroup. A cgroup passes controllers on only if it
// contains no processes, so this process first moves to another cgroup, except from the root cgroup, which has no cgroup.type and may contain processes. It
// moves without waiting for EBUSY from the kernel: if pids is the only controller, the kernel returns no error, but makes the cgroup threaded, and no process
// can be started below a threaded cgroup.
func (b *base) enableControllers(controllers []string) error {
	own := filepath.Dir(b.dir)
	if err := checkControllers(own, controllers); err != nil {
		return err
	}
	if unix.Access(filepath.Join(own, "cgroup.type"), unix.F_OK) == nil {
		if err := moveToLeaf(own, b.leaf); err != nil {
			return err
		}
	}
	for _, dir := range []string{own, b.dir} {
		if err := writeControl(dir, "cgroup.subtree_control", "+"+strings.Join(controllers, " +")); err != nil {
			return err
		}
	}
	return nil
}

func checkControllers(dir string, controllers []string) error {
	has, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, name := range controllers {
		if !slices.Contains(strings.Fields(string(has)), name) {
			return fmt.Errorf("the controller %s is not available in %s", name, dir)
		}
	}
	return nil
}

// moveToLeaf moves all processes of a cgroup to a leaf below it. It fails if a process is neither this process nor a child of this process. If a replica dies
// without removing its leaf, its warden or a later replica removes the leaf once no process is in it.
func moveToLeaf(own, leaf string) error {
	for range 3 { // a child that is being started appears in the next list
		pids, err := cgroupMembers(own)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if !isOurs(pid) {
				return fmt.Errorf("cgroup %s also holds process %s, and must be the replica's alone", own, pid)
			}
		}
		if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := moveProcesses(pids, leaf); err != nil {
			return err
		}
	}
	return nil
}

// goHome undoes enableControllers and moveToLeaf: it disables the controllers and moves the processes back to the original cgroup, so that another replica
// can start there. It does nothing while other cgroups exist below the original one, because they may need the controllers.
func (b *base) goHome() error {
	own := filepath.Dir(b.leaf)
	if unix.Access(b.leaf, unix.F_OK) != nil || len(proc.CgroupsBelow(own)) > 1 {
		return nil
	}
	handed, err := os.ReadFile(filepath.Join(own, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	if names := strings.Fields(string(handed)); len(names) > 0 {
		if err := writeControl(own, "cgroup.subtree_control", "-"+strings.Join(names, " -")); err != nil {
			return err
		}
	}
	pids, err := cgroupMembers(b.leaf)
	if err != nil {
		return err
	}
	return errors.Join(moveProcesses(pids, own), proc.RemoveCgroup(b.leaf))
}

// cgroupMembers returns the PIDs in a cgroup, without the PIDs in cgroups below it.
func cgroupMembers(dir string) ([]string, error) {
	list, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	return strings.Fields(string(list)), err
}

func moveProcesses(pids []string, dir string) error {
	for _, pid := range pids {
		if err := writeControl(dir, "cgroup.procs", pid); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// isOurs reports whether a process is this one or its child. It returns true for a process that has exited, because that process needs no move.
func isOurs(text string) bool {
	pid, err := strconv.Atoi(text)
	if err != nil || pid == 0 { // PID 0 stands for a process outside this PID namespace
		return false
	}
	p, ok := proc.Of(pid)
	return !ok || pid == os.Getpid() || p.Parent == os.Getpid()
}

// applyLimits sets a run's limits before anything runs in the cgroup. If it fails, the cgroup is removed.
func (c *cgroup) applyLimits(l Limits) (tree, error) {
	if err := c.setLimits(l); err != nil {
		c.remove()
		return nil, fmt.Errorf("%w: %w", ErrLimits, err)
	}
	return c, nil
}

func (c *cgroup) setLimits(l Limits) error {
	var faults []error
	set := func(file string, n int64) {
		faults = append(faults, writeControl(c.dir, file, strconv.FormatInt(n, 10)))
	}
	if l.Pids > 0 {
		set("pids.max", int64(l.Pids))
	}
	if l.Memory > 0 {
		set("memory.max", l.Memory)
		set("memory.oom.group", 1)                                                               // kill the whole tree, because the rest of it would be useless
		if err := writeControl(c.dir, "memory.swap.max", "0"); !errors.Is(err, fs.ErrNotExist) { // the kernel has this file only if swap is enabled
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// outOfMemory reads memory.events, which exists if the memory controller is enabled in the cgroup.
func (c *cgroup) outOfMemory() bool {
	var events [512]byte
	n, err := readAt(c.fd, "memory.events", events[:])
	if err != nil {
		return false
	}
	for line := range bytes.Lines(events[:n]) {
		if count, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("oom_kill ")); ok {
			return string(count) != "0"
		}
	}
	return false
}

// oomCounter is the path of the file in which the kernel counts the processes of a cgroup that it killed because memory was short, or "". The file is
// memory.events in cgroup version 2, which includes the cgroups below, or memory.oom_control in version 1.
type oomCounter string

// newOOMCounter finds the file for the cgroup in which this process was started. Call it before this process moves to another cgroup.
func newOOMCounter() oomCounter {
	if own, err := ownCgroup("/proc/self/mountinfo", "/proc/self/cgroup"); err == nil {
		file := filepath.Join(own, "memory.events")
		if _, err := os.Stat(file); err == nil {
			return oomCounter(file)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	member, err2 := os.ReadFile("/proc/self/cgroup")
	if err != nil || err2 != nil {
		return ""
	}
	return oomCounter(locateOOMControl(string(mounts), string(member)))
}

// locateOOMControl returns the path of memory.oom_control of version 1, given the texts of mountinfo and of /proc/PID/cgroup ("4:memory:/path").
func locateOOMControl(mountinfo, member string) string {
	path, found := "", false
	for line := range strings.Lines(member) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) == 3 && slices.Contains(strings.Split(fields[1], ","), "memory") {
			path, found = fields[2], true
		}
	}
	for line := range strings.Lines(mountinfo) {
		before, after, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !found || len(fields) < 6 || len(kind) < 3 || kind[0] != "cgroup" || !slices.Contains(strings.Split(kind[2], ","), "memory") {
			continue
		}
		if rel, err := filepath.Rel(fields[3], path); err == nil && filepath.IsLocal(rel) {
			return filepath.Join(fields[4], rel, "memory.oom_control")
		}
	}
	return ""
}

// killCount returns the number of kills so far, or 0 if it is unknown.
func (c oomCounter) killCount() int64 {
	if c == "" {
		return 0
	}
	text, err := os.ReadFile(string(c))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if count, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("oom_kill ")); ok {
			n, _ := strconv.ParseInt(string(count), 10, 64)
			return n
		}
	}
	return 0
}
