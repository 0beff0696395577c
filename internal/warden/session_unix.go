//go:build linux || darwin

package warden

import "syscall"

// ownSession keeps signals to the terminal and the process group of the replica from the helper.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
