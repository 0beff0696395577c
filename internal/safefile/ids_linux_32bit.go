//go:build linux && (386 || arm)

package safefile

import "golang.org/x/sys/unix"

// The calls without a number know 16 bits of an id.
const setgroups, setfsgid, setfsuid = unix.SYS_SETGROUPS32, unix.SYS_SETFSGID32, unix.SYS_SETFSUID32
