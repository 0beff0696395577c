//go:build linux || darwin

package warden

import "syscall"

// ownSession keeps what is meant for our terminal and our group from the helper.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
