//go:build !linux

package harness

import (
	"os/exec"
	"strconv"
	"strings"
)

// DieWithUs does nothing where the kernel offers nothing of the kind.
func DieWithUs(*exec.Cmd) {}

// ProcessState returns the letters that ps has for the state of a process, "" if there is no such process.
func ProcessState(pid int) string {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
