//go:build linux || darwin

package warden

import "syscall"

// ownSession keeps the signals of our terminal and our group from the helper.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
