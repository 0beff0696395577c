package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

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
