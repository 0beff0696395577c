package demo

import (
	"os/exec"
	"syscall"
)

// tieToDemo puts a replica into its own process group. Ctrl-C on the terminal then reaches only the demo, which ends its replicas itself. On macOS the
// replicas continue if the demo is killed.
func tieToDemo(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// adoptOrphans does nothing. On macOS the processes that a killed replica leaves behind run until they end by themselves.
func adoptOrphans() error { return nil }

func endOrphans() int { return 0 }
