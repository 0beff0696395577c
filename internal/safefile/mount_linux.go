package safefile

import "golang.org/x/sys/unix"

func mountedReadOnly(fs *unix.Statfs_t) bool { return fs.Flags&unix.ST_RDONLY != 0 }
