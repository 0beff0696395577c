package demo

import (
	"os/exec"
	"syscall"
)

// tieToDemo keeps Ctrl-C on the terminal from a replica, because the demo ends its replicas itself. On macOS a demo that is killed leaves its replicas
// behind.
func tieToDemo(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// adoptOrphans does nothing: on macOS the orphans of a killed replica run to their own end.
func adoptOrphans() error { return nil }

func endOrphans() int { return 0 }
