//go:build linux && (386 || arm)

package safefile

import "golang.org/x/sys/unix"

// The 32-bit system calls without the suffix 32 use 16-bit ids.
const setgroups, setfsgid, setfsuid = unix.SYS_SETGROUPS32, unix.SYS_SETFSGID32, unix.SYS_SETFSUID32
