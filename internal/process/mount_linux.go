package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cronclave/cronclave/internal/proc"
)

// ownCgroup returns the directory of this process's version 2 cgroup. The files are described in proc(5) and cgroups(7). In the hybrid layout, version 2 is
// at /sys/fs/cgroup/unified, beside the controllers of version 1. That is enough, because membership and cgroup.kill need no controller.
func ownCgroup(mountinfo, cgroup string) (string, error) {
	member, err := os.ReadFile(cgroup)
	if err != nil {
		return "", err
	}
	path, err := unifiedPath(string(member))
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile(mountinfo)
	if err != nil {
		return "", err
	}
	return mountedPath(string(mounts), path)
}

// unifiedPath returns the path of the version 2 line of /proc/PID/cgroup, "0::/path".
func unifiedPath(member string) (string, error) {
	for line := range strings.Lines(member) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			if strings.HasPrefix(path, "/..") {
				return "", errors.New("this process is outside of its cgroup namespace")
			}
			return path, nil
		}
	}
	return "", errors.New("this process is in none")
}

// mountedPath returns the directory of the cgroup in the file system, given its path in the hierarchy.
func mountedPath(mountinfo, path string) (string, error) {
	for _, m := range proc.ParseMounts(mountinfo) {
		rel, err := filepath.Rel(m.Root, path)
		if m.Type != "cgroup2" || err != nil || strings.HasPrefix(m.Root, "/..") || rel == ".." || strings.HasPrefix(rel, "../") {
			continue
		}
		return filepath.Join(m.Point, rel), nil
	}
	return "", fmt.Errorf("no mount shows %s", path)
}
