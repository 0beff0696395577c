package safefile

import (
	"slices"

	"golang.org/x/sys/unix"
)

// as calls f with the process's own rights, since the runtime can't keep other rights to one thread on macOS. permitted judges the user's right to
// read.
func as(_ *Identity, f func(error)) { f(nil) }

// permitted refuses a file that the user may not read by its mode. Folders on the way to it are not asked.
func permitted(st *unix.Stat_t, who *Identity) error {
	if who == nil || who.UID == 0 {
		return nil
	}
	bit := uint16(0o004)
	switch {
	case st.Uid == who.UID:
		bit = 0o400
	case st.Gid == who.GID, slices.Contains(who.Groups, st.Gid):
		bit = 0o040
	}
	if st.Mode&bit == 0 {
		return unix.EACCES
	}
	return nil
}
