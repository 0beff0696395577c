package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

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

// RemoveCgroup removes an empty cgroup and the cgroups below it. It searches for cgroups below only if the first removal fails, because they are rare. It
// returns nil if the cgroup does not exist.
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
