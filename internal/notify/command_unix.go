//go:build unix

package notify

import (
	"os/exec"
	"syscall"
)

// inOwnGroup makes a command start in a process group of its own. The returned function kills the group.
func inOwnGroup(cmd *exec.Cmd) (kill func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // an error means that no process is left
}
