//go:build !unix

package notify

import "os/exec"

// inOwnGroup returns a function that kills the command. Without process groups, its children continue.
func inOwnGroup(cmd *exec.Cmd) (kill func()) {
	return func() { _ = cmd.Process.Kill() } // an error means that the process has ended
}
