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

	"github.com/cronclave/cronclave/internal/proc"
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
		return fmt.Errorf("%w: %w (limits need a cgroup v2 that only this replica uses, with the controllers; a systemd service with "+
			"Delegate=yes has one)", ErrLimits, err)
	}
	return nil
}

// provide has the controllers work in the cgroups of runs, two levels below our own. Only a cgroup without processes hands controllers on, so we
// leave ours. That does not wait for the kernel's EBUSY: pids alone it does hand on, and makes our cgroup one of threads, below which no process
// can be started any more. The root of all may do both; it has no type.
func (b *base) provide(controllers []string) error {
	own := filepath.Dir(b.dir)
	if err := available(own, controllers); err != nil {
		return err
	}
	if unix.Access(filepath.Join(own, "cgroup.type"), unix.F_OK) == nil {
		if err := vacate(own, b.leaf); err != nil {
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

// available returns whether a cgroup has controllers to hand on.
func available(dir string, controllers []string) error {
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

// vacate moves all processes of a cgroup to one below it. They must be this one and its children: others are not ours to move. If it is left
// behind it is taken for that of a dead replica when there is no process in it any more.
func vacate(own, leaf string) error {
	for range 3 { // a child that is just being started is in the next list
		pids, err := members(own)
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
		if err := move(pids, leaf); err != nil {
			return err
		}
	}
	return nil
}

// goHome undoes the changes of provide to our own cgroup: it hands no controllers on, and we are in it again, so that another replica can start
// there. It changes nothing while other processes are below the cgroup, since they may need the controllers.
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
	pids, err := members(b.leaf)
	if err != nil {
		return err
	}
	return errors.Join(move(pids, own), proc.RemoveCgroup(b.leaf))
}

// members lists the processes of a cgroup, without those below it.
func members(dir string) ([]string, error) {
	list, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	return strings.Fields(string(list)), err
}

// move moves processes to a cgroup. They may end meanwhile.
func move(pids []string, dir string) error {
	for _, pid := range pids {
		if err := writeControl(dir, "cgroup.procs", pid); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// isOurs returns whether a process is this one or a child of it. A process that has just ended is neither.
func isOurs(text string) bool {
	pid, err := strconv.Atoi(text)
	if err != nil || pid == 0 { // one that our pid namespace does not have
		return false
	}
	p, ok := proc.Of(pid)
	return !ok || pid == os.Getpid() || p.Parent == os.Getpid()
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
	set := func(file string, n int64) {
		faults = append(faults, writeControl(c.dir, file, strconv.FormatInt(n, 10)))
	}
	if l.Pids > 0 {
		set("pids.max", int64(l.Pids))
	}
	if l.Memory > 0 {
		set("memory.max", l.Memory)
		set("memory.oom.group", 1)                                                               // half a tree is of no use to anybody
		if err := writeControl(c.dir, "memory.swap.max", "0"); !errors.Is(err, fs.ErrNotExist) { // where there is no swap
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
