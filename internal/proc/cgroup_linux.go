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

// Populated returns, by the text of cgroup.events and the error of reading it, whether a living process is in a cgroup or below it. A cgroup with a
// process in it can't be removed, so one that is gone is empty.
func Populated(events []byte, err error) bool {
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV)
	}
	return bytes.Contains(events, []byte("populated 1"))
}

// CgroupProcesses lists the processes in a cgroup and below it.
func CgroupProcesses(dir string) map[int]bool {
	found := map[int]bool{}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return nil
		}
		list, _ := os.ReadFile(path)
		for _, field := range strings.Fields(string(list)) {
			// 0 stands for a process that our pid namespace does not have.
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				found[pid] = true
			}
		}
		return nil
	})
	return found
}

// CgroupsBelow lists the cgroups right below one.
func CgroupsBelow(dir string) (names []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// RemoveCgroup removes an empty cgroup and those below it, which are rare: it looks for them when it must. One that is gone
// is fine.
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
