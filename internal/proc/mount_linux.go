package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Mount is a file system as a process sees it.
type Mount struct {
	// Root is the part of the file system that is mounted, and Point the folder at which it is.
	Root, Point  string
	Type, Source string
}

// ParseMounts reads the text of /proc/PID/mountinfo. A line has an id, a parent's id, the device, the root, the mount point and options; then a dash,
// the type, the source and more.
func ParseMounts(mountinfo string) (all []Mount) {
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		fields, more := strings.Fields(before), strings.Fields(after)
		if ok && len(fields) >= 6 && len(more) >= 2 {
			all = append(all, Mount{unescape(fields[3]), unescape(fields[4]), more[0], unescape(more[1])})
		}
	}
	return all
}

// unescape resolves the octal escapes by which mountinfo writes white space and backslashes.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return regexp.MustCompile(`\\[0-7]{3}`).ReplaceAllStringFunc(s, func(e string) string {
		n, _ := strconv.ParseUint(e[1:], 8, 8)
		return string([]byte{byte(n)})
	})
}

// OnMount returns " (mount POINT, TYPE SOURCE)" for a path below a mount, and "" below the root alone. It touches no file system but /proc, so symbolic links
// are not followed.
func OnMount(path string) string {
	on := findMount(path)
	if on.Point == "" {
		return ""
	}
	return fmt.Sprintf(" (mount %s, %s %s)", on.Point, on.Type, on.Source)
}

// MountPoint returns the folder at which the mount of a path is, found as by [OnMount]. It returns "" below the root alone.
func MountPoint(path string) string { return findMount(path).Point }

// AbsolutePath returns a relative path behind the working directory, and any other path unchanged. It asks no file system but /proc. [filepath.Abs] would ask the
// file system of the working directory, which may not answer.
func AbsolutePath(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	folder, err := os.Readlink("/proc/self/cwd")
	if err != nil {
		return path
	}
	return folder + "/" + path // not filepath.Join: LINK/.. is the parent of the link's target
}

// findMount returns the mount of a path; the zero value below the root alone.
func findMount(path string) (on Mount) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Mount{}
	}
	path = filepath.Clean(AbsolutePath(path))
	for _, m := range ParseMounts(string(text)) {
		rest, below := strings.CutPrefix(path, m.Point)
		if below && (rest == "" || rest[0] == '/') && len(m.Point) >= len(on.Point) { // of two on one folder the later one counts
			on = m
		}
	}
	if on.Point == "/" {
		return Mount{}
	}
	return on
}
