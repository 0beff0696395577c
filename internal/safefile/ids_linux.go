//go:build linux && !386 && !arm

package safefile

import "golang.org/x/sys/unix"

const setgroups, setresgid, setresuid = unix.SYS_SETGROUPS, unix.SYS_SETRESGID, unix.SYS_SETRESUID
