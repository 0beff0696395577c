package safefile

import (
	"slices"

	"golang.org/x/sys/unix"
)

// withRights calls f with the rights of this process, because on macOS the Go runtime can't give other rights to a single thread. checkReadable checks the
// mode of the file instead.
func withRights(_ *Identity, f func(error)) { f(nil) }

// checkReadable returns an error if the mode of a file does not let the user read it. It does not check the folders in the path of the file.
func checkReadable(st *unix.Stat_t, who *Identity) error {
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

func mountedReadOnly(fs *unix.Statfs_t) bool { return fs.Flags&unix.MNT_RDONLY != 0 }
