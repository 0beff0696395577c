package harness

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// DieWithUs has the kernel kill the child when the test binary goes away without its clean-up, as it does when a
// test's time is up. (The signal comes with the end of the thread that forked. Go ends a thread only together with a
// goroutine that locked itself to it, which nothing here does.)
func DieWithUs(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// ProcessState returns the letter that stands for the state of a process ("T" is stopped, "Z" not reaped), "" if there
// is no such process.
func ProcessState(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name in parentheses may hold spaces and parentheses itself.
	after := stat[bytes.LastIndexByte(stat, ')')+1:]
	return string(bytes.Fields(after)[0])
}
