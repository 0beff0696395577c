//go:build linux && (386 || arm)

package safefile

import "golang.org/x/sys/unix"

// The calls without a number know 16 bits of an id.
const setgroups, setresgid, setresuid = unix.SYS_SETGROUPS32, unix.SYS_SETRESGID32, unix.SYS_SETRESUID32
