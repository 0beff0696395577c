package command

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// process holds the fields of /proc/PID/stat that this package uses.
type process struct {
	pid, parent, group int
	state              byte
}

// dead returns whether the process has ended, reaped or not.
func (p process) dead() bool { return p.state == 'Z' || p.state == 'X' }

// runOf is the run that a process was started for, by its environment; "" if there is none, or if we may not
// look into the process. It is not known while the process is between two programs.
func runOf(pid int) (id string, known bool) {
	env, known := environ(pid)
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if id, ok := bytes.CutPrefix(entry, []byte(runID+"=")); ok {
			return string(id), known
		}
	}
	return "", known
}

// environ reads the environment that a process was started with. In execve, and in a process that is dying but
// no zombie yet, there is none for a moment: the file is empty, or can't be opened (ESRCH, in newer kernels).
// An empty environment is told from that by its address, the last but two of the fields of stat.
func environ(pid int) (env []byte, known bool) {
	stat := make([]byte, 1024)
	for range 2 {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if len(env) > 0 || err != nil && !errors.Is(err, unix.ESRCH) {
			return env, true
		}
		n := readOnce(fmt.Sprintf("/proc/%d/stat", pid), stat)
		fields := bytes.Fields(stat[:n])
		if len(fields) > 3 && string(fields[len(fields)-3]) == "0" {
			return nil, false
		}
	}
	return nil, true
}

// processes lists all processes of the machine, or of our pid namespace. The kernel's shorter way to
// the children alone (/proc/PID/task/TID/children) is optional and may miss some.
func processes() ([]process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []process
	buffer := make([]byte, 512) // the fields of interest are at the beginning
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		n := readOnce("/proc/"+name+"/stat", buffer)
		if p, ok := parseStat(pid, buffer[:n]); ok {
			all = append(all, p)
		}
	}
	return all, nil
}

// readOnce reads the beginning of a file of /proc, in half the time that os.ReadFile takes.
func readOnce(path string, buffer []byte) int {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buffer)
	if err != nil {
		return 0
	}
	return n
}

// parseStat reads "PID (NAME) STATE PARENT GROUP ...", where NAME may have anything in it.
func parseStat(pid int, stat []byte) (process, bool) {
	end := bytes.LastIndexByte(stat, ')')
	fields := bytes.Fields(stat[end+1:])
	if end < 0 || len(fields) < 3 {
		return process{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	group, err2 := strconv.Atoi(string(fields[2]))
	return process{pid: pid, parent: parent, group: group, state: fields[0][0]}, err1 == nil && err2 == nil
}

// groupLives returns whether a process group has a member that is not a zombie, or one that is out of our reach. Where /proc can't be read every
// group lives, until the kernel says that there is none.
func groupLives(id int) bool {
	if errors.Is(unix.Kill(-id, 0), unix.EPERM) {
		return true
	}
	all, err := processes()
	return err != nil || slices.ContainsFunc(all, func(p process) bool { return p.group == id && !p.dead() })
}
