package main

import (
	"os/exec"
	"syscall"
)

// leash keeps Ctrl-C on the terminal from a replica, which the demo itself ends. A demo that is killed leaves its
// replicas behind here.
func leash(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// adoptOrphans can't be done here: what a killed replica leaves behind goes on to its own end.
func adoptOrphans() error { return nil }

func endOrphans() int { return 0 }
