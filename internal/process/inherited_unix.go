//go:build linux || darwin

package process

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// KeepInherited hides the files that this process inherited, except stdin, stdout and stderr, from the programs that it starts. The Go runtime sets the
// close-on-exec flag only on files that it opens itself. Call it before the first program starts. The lock command does not call it, because its command
// takes the place of the caller and needs the caller's files: `cronclave lock x -- diff <(a) <(b)`.
func KeepInherited() {
	if markAll() == nil {
		return
	}
	files, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
	for _, f := range files {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}
