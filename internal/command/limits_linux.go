package command

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
)

// controllers are those that keep the limits.
func (l Limits) controllers() (names []string) {
	if l.Memory > 0 {
		names = append(names, "memory")
	}
	if l.Pids > 0 {
		names = append(names, "pids")
	}
	return names
}

// allow makes sure that the cgroups of runs can have limits.
func (c *cells) allow(l Limits) error {
	err := c.reason
	if c.base != nil {
		err = c.base.provide(l.controllers())
	}
	if err != nil {
		return fmt.Errorf("%w: %w (they take a cgroup v2 that is the replica's alone and has the controllers, as a systemd service with "+
			"Delegate=yes has)", ErrLimits, err)
	}
	return nil
}

// provide has the controllers work in the cgroups of runs, two levels below our own.
func (b *base) provide(controllers []string) error {
	own := filepath.Dir(b.dir)
	err := handOn(own, controllers)
	if errors.Is(err, unix.EBUSY) { // we are in it: only one without processes hands controllers on
		if err = vacate(own); err == nil {
			err = handOn(own, controllers)
		}
	}
	if err != nil {
		return err
	}
	return handOn(b.dir, controllers)
}

// handOn has controllers work in the cgroups below one.
func handOn(dir string, controllers []string) error {
	has, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, name := range controllers {
		if !slices.Contains(strings.Fields(string(has)), name) {
			return fmt.Errorf("the controller %s is not available in %s", name, dir)
		}
	}
	return writeControl(dir, "cgroup.subtree_control", "+"+strings.Join(controllers, " +"))
}

// vacate moves all processes of a cgroup to one below it. They must be this one and its children: others are not ours to move. What
// it leaves is taken for that of a dead replica when there is no process in it any more.
func vacate(own string) error {
	list, err := os.ReadFile(filepath.Join(own, "cgroup.procs"))
	if err != nil {
		return err
	}
	pids := strings.Fields(string(list))
	for _, pid := range pids {
		if !isOurs(pid) {
			return fmt.Errorf("process %s, too, is in %s, which must be the replica's alone", pid, own)
		}
	}
	leaf := filepath.Join(own, fmt.Sprintf("cronclave-%d-replica", os.Getpid()))
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, pid := range pids {
		if err := writeControl(leaf, "cgroup.procs", pid); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// isOurs tells whether a process is this one or a child of it. One that has just ended is nobody's.
func isOurs(text string) bool {
	pid, err := strconv.Atoi(text)
	if err != nil || pid == 0 { // one that our pid namespace does not have
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	p, ok := parseStat(pid, stat)
	return ok && (pid == os.Getpid() || p.parent == os.Getpid())
}

// limited sets a run's limits, before anything runs in it; where that fails the cgroup is given back.
func (c *cgroup) limited(l Limits) (tree, error) {
	if err := c.limit(l); err != nil {
		c.remove()
		return nil, fmt.Errorf("%w: %w", ErrLimits, err)
	}
	return c, nil
}

func (c *cgroup) limit(l Limits) error {
	var faults []error
	set := func(file string, n int64) { faults = append(faults, c.write(file, strconv.FormatInt(n, 10))) }
	if l.Pids > 0 {
		set("pids.max", int64(l.Pids))
	}
	if l.Memory > 0 {
		set("memory.max", l.Memory)
		set("memory.oom.group", 1)                                                   // half a tree is of no use to anybody
		if err := c.write("memory.swap.max", "0"); !errors.Is(err, fs.ErrNotExist) { // where there is no swap
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// starved reads memory.events, which is there if the memory controller works in the cgroup.
func (c *cgroup) starved() bool {
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
