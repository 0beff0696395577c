package process

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// oomCounter is the path of the file in which the kernel counts the processes of this cgroup that it killed for memory, or "". The file is memory.events in
// version 2, which includes cgroups below, or memory.oom_control in version 1.
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
