//go:build linux && !386 && !arm

package safefile

import "golang.org/x/sys/unix"

const setgroups, setfsgid, setfsuid = unix.SYS_SETGROUPS, unix.SYS_SETFSGID, unix.SYS_SETFSUID
