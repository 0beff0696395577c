package warden

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// runID is the variable in the environment of a run's processes that identifies the run.
const runID = "CRONCLAVE_RUN_ID"

// sweeper looks at the processes of the machine, or of our pid namespace: at most once for all runs of a round.
type sweeper struct {
	byNumber bool // the kernel can't signal a group by a handle
	latest   *sight
}

// sight is what one look has seen of the living.
type sight struct {
	byRun    map[string][]int // by the run's id
	groups   map[int]bool     // that have a member
	complete bool             // nothing was between two programs, where no environment can be read
}

func newSweeper() *sweeper { return &sweeper{} }

// begin begins a round: the next look is a new one.
func (s *sweeper) begin() { s.latest = nil }

func (s *sweeper) look() *sight {
	if s.latest == nil {
		s.latest = lookAround()
	}
	return s.latest
}

func lookAround() *sight {
	seen := &sight{byRun: map[string][]int{}, groups: map[int]bool{}}
	dir, err := os.Open("/proc")
	if err != nil {
		return seen
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	seen.complete = err == nil
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		p, ok := statOf(pid)
		if !ok || p.dead() || p.kernel() {
			continue
		}
		seen.groups[p.group] = true
		switch id, known := runOf(pid); {
		case !known:
			seen.complete = false
		case id != "":
			seen.byRun[id] = append(seen.byRun[id], pid)
		}
	}
	return seen
}

// stat holds the fields of /proc/PID/stat that this package uses.
type stat struct {
	state byte
	group int
	flags uint64
	start uint64 // in clock ticks since the machine's
	env   string // the address of its environment
}

// dead returns whether the process has ended, reaped or not.
func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' }

// kernel returns whether it is a thread of the kernel.
func (s stat) kernel() bool { const flag = 0x00200000; return s.flags&flag != 0 }

func statOf(pid int) (stat, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, false
	}
	return parseStat(text)
}

// parseStat reads "PID (NAME) STATE PARENT GROUP ...", where NAME may have anything in it.
func parseStat(text []byte) (stat, bool) {
	const state, group, flags, start, envStart = 0, 2, 6, 19, 47
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) <= envStart {
		return stat{}, false
	}
	s := stat{state: fields[state][0], env: string(fields[envStart])}
	var err1, err2, err3 error
	s.group, err1 = strconv.Atoi(string(fields[group]))
	s.flags, err2 = strconv.ParseUint(string(fields[flags]), 10, 64)
	s.start, err3 = strconv.ParseUint(string(fields[start]), 10, 64)
	return s, errors.Join(err1, err2, err3) == nil
}

// birth is when a process was started, in the kernel's own unit; 0 if it is gone. It distinguishes two processes that had the same number one after
// the other.
func birth(pid int) uint64 {
	s, _ := statOf(pid)
	return s.start
}

// runOf is the run that a process was started for, by its environment; "" if there is none, or if we may not look into the
// process. It is not known while the process is between two programs.
func runOf(pid int) (id string, known bool) {
	for range 2 {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		for entry := range bytes.SplitSeq(env, []byte{0}) {
			if id, ok := bytes.CutPrefix(entry, []byte(runID+"=")); ok {
				return string(id), true
			}
		}
		if len(env) > 0 || err != nil && !errors.Is(err, unix.ESRCH) {
			return "", true
		}
		// In execve, and in a process that is dying but no zombie yet, there is no environment for a moment. An empty one is told
		// from that by its address.
		if s, ok := statOf(pid); ok && !s.dead() && s.env == "0" {
			return "", false
		}
	}
	return "", true
}
