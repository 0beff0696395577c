//go:build linux || darwin

package command

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// KeepInherited keeps the files that this process was started with, beyond stdin, stdout and stderr, from the programs that it starts: the runtime has marked all
// that it opens so, and leaves what it finds open. It is called before the first one starts; not by the command lock,
// whose command takes its caller's place, with `diff <(a) <(b)` too.
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
