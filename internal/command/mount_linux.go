package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// ownCgroup finds the directory of the version 2 cgroup that this process is in. The hybrid layout, with
// version 2 at /sys/fs/cgroup/unified beside the controllers of version 1, is as good as the plain one: the features
// in use here (membership, cgroup.kill) belong to no controller. The files are those of proc(5) and
// cgroups(7).
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
	return locate(string(mounts), path)
}

// unifiedPath takes the version 2 line, "0::/path", out of /proc/PID/cgroup.
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

// locate finds where a mount shows the cgroup's path. A line of mountinfo has an id, a parent's id, the
// device, the root (the part of the hierarchy that is mounted), the mount point and options; then a dash, the
// type and more.
func locate(mountinfo, path string) (string, error) {
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if !ok || len(fields) < 6 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		root := unescape(fields[3])
		rel, err := filepath.Rel(root, path)
		if err != nil || strings.HasPrefix(root, "/..") || rel == ".." || strings.HasPrefix(rel, "../") {
			continue
		}
		return filepath.Join(unescape(fields[4]), rel), nil
	}
	return "", fmt.Errorf("no mount shows %s", path)
}

// unescape resolves the octal escapes by which mountinfo writes white space and backslashes.
func unescape(s string) string {
	return regexp.MustCompile(`\\[0-7]{3}`).ReplaceAllStringFunc(s, func(e string) string {
		n, _ := strconv.ParseUint(e[1:], 8, 8)
		return string([]byte{byte(n)})
	})
}
