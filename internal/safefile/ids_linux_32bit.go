//go:build linux && (386 || arm)

package safefile

import "golang.org/x/sys/unix"

// On 32-bit machines, the system calls without the suffix 32 in their names take ids of only 16 bits.
const setgroups, setfsgid, setfsuid = unix.SYS_SETGROUPS32, unix.SYS_SETFSGID32, unix.SYS_SETFSUID32
