package demo

import (
	"os/exec"
	"syscall"
)

// tie keeps Ctrl-C on the terminal from a replica, which the demo itself ends. A demo that is killed leaves its
// replicas behind here.
func tie(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// adoptOrphans can't be done on macOS: the orphans of a killed replica run to their own end.
func adoptOrphans() error { return nil }

func endOrphans() int { return 0 }
