//go:build !linux

package integration

import (
	"os/exec"
	"strconv"
	"strings"
)

// dieWithUs does nothing where the kernel offers nothing of the kind.
func dieWithUs(*exec.Cmd) {}

// processState returns the letters that ps has for the state of a process, "" if there is no such process.
func processState(pid int) string {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
