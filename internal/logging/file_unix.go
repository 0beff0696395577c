//go:build unix

package logging

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// firstOwn is the first descriptor after stdin, stdout and stderr.
const firstOwn = 3

// duplicateFile returns a duplicate of the file with another descriptor, which children do not inherit. If that fails, it returns f.
func duplicateFile(f *os.File) io.Writer {
	conn, err := f.SyscallConn()
	if err != nil {
		return f
	}
	copied := -1
	if conn.Control(func(fd uintptr) { copied, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, firstOwn) }) != nil || err != nil {
		return f
	}
	return os.NewFile(uintptr(copied), f.Name())
}
