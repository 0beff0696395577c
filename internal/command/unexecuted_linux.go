package command

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// forkedNotExecuted is PF_FORKNOEXEC of the kernel's include/linux/sched.h: the process was forked, and has not executed a program yet.
const forkedNotExecuted = 0x40

// flagsOf reads the kernel's flags of a process, dead or alive, from its stat.
func flagsOf(stat []byte) (flags uint64, ok bool) {
	end := bytes.LastIndexByte(stat, ')')
	fields := bytes.Fields(stat[end+1:])
	if end < 0 || len(fields) < 7 {
		return 0, false
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 64)
	return flags, err == nil
}

// executed returns whether a child that was not reaped yet has executed a program; yes if that can't be told.
func executed(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	flags, ok := flagsOf(stat)
	return !ok || flags&forkedNotExecuted == 0
}

// killUnexecuted kills the child that this process has forked, and that has not executed its program yet. There is one at most, since the runtime waits in the
// fork until it has.
func killUnexecuted(t tree) {
	if c, ok := t.(*cgroup); ok {
		_, _ = c.killer.WriteString("1")
	}
	all, _ := processes()
	for _, p := range all {
		if p.parent == os.Getpid() && !p.dead() && !executed(p.pid) {
			_ = unix.Kill(p.pid, unix.SIGKILL)
		}
	}
}
