//go:build linux || darwin

package warden

import "syscall"

// ownSession starts the helper in a session of its own, so that it gets no signals that are meant for the replica's process group or terminal.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
