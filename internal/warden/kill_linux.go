package warden

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
)

// processes is the target on Linux. It consists of the run's process group and of the run's cgroup. Without a cgroup, it also includes the processes with the
// run's id in their environment. Signals are sent through pidfds, because a pidfd always refers to the same process or group, even after its number was
// reused.
type processes struct {
	sweeper *sweeper
	id      string // the CRONCLAVE_RUN_ID of the run's processes, or "" if they can't be found by this variable
	cgroup  string // directory of the cgroup, or ""
	leader  int    // PID; 0 before it is known and after forgetLeader
	start   uint64 // start time of the leader, see processStart
	handle  int    // pidfd of the leader, or -1
}

func (s *sweeper) newTarget(id, cgroup string) target {
	return &processes{sweeper: s, id: id, cgroup: cgroup, handle: -1}
}

// setLeader opens a pidfd of the leader. If the start time differs, the PID belongs to another process by now, and setLeader forgets it.
func (p *processes) setLeader(leader int, start uint64) {
	p.forgetLeader()
	handle, err := unix.PidfdOpen(leader, 0)
	if err != nil {
		handle = -1
	}
	p.leader, p.start, p.handle = leader, start, handle
	if processStart(leader) != start { // the leader was reaped, so the replica is gone
		p.forgetLeader()
	}
}

func (p *processes) forgetLeader() {
	if p.handle >= 0 {
		unix.Close(p.handle)
	}
	p.leader, p.start, p.handle = 0, 0, -1
}

func (p *processes) terminate() {
	switch {
	case p.cgroup != "":
		leader, pids := p.leader, proc.CgroupProcesses(p.cgroup) // listed first, because the leader may start other processes when it gets SIGTERM
		_ = p.sendLeader(unix.SIGTERM)                           // first, because a shell would start its next command when the current command dies
		for pid := range pids {
			inside := func() bool { return pid != leader && proc.CgroupProcesses(p.cgroup)[pid] }
			signalIf(pid, unix.SIGTERM, inside)
		}
	case p.leader != 0:
		p.signalGroup(unix.SIGTERM)
	default: // the leader may have started before the helper got its PID
		p.signalMarked(unix.SIGTERM)
	}
}

func (p *processes) killKnown() {
	if p.cgroup != "" && isPopulated(p.cgroup) {
		_ = os.WriteFile(filepath.Join(p.cgroup, "cgroup.kill"), []byte("1"), 0)
	}
	p.signalGroup(unix.SIGKILL)
}

// killRest kills the remaining processes. It removes an empty cgroup, so that no further process can start in it.
func (p *processes) killRest() (clean bool) {
	if p.cgroup != "" {
		return !isPopulated(p.cgroup) && proc.RemoveCgroup(p.cgroup) == nil && !p.groupLives()
	}
	found := p.signalMarked(unix.SIGKILL)
	return !found && !p.groupLives()
}

// groupLives reports whether the group has a living member. Do not use the result to send signals: after the leader was reaped, the number may belong to
// another group.
func (p *processes) groupLives() bool {
	return p.leader != 0 && p.sweeper.currentSight().groups[p.leader] && p.groupExists()
}

// groupExists reports whether the group has any process, dead or alive.
func (p *processes) groupExists() bool {
	err := p.sendGroup(0)
	return err == nil || errors.Is(err, unix.EPERM)
}

func (p *processes) signalGroup(signal unix.Signal) {
	if p.leader != 0 {
		_ = p.sendGroup(signal)
	}
}

// sendGroup sends a signal to the group through the leader's pidfd (Linux 6.9). An older kernel addresses a group only by its number. The signal is then sent
// only if the number still belongs to the leader, dead or alive.
func (p *processes) sendGroup(signal unix.Signal) error {
	if !p.sweeper.byNumber && p.handle >= 0 {
		err := unix.PidfdSendSignal(p.handle, signal, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP)
		if !errors.Is(err, unix.EINVAL) {
			return err
		}
		p.sweeper.byNumber = true
	}
	if err := p.sendLeader(0); err != nil && !errors.Is(err, unix.EPERM) {
		return err
	}
	return unix.Kill(-p.leader, signal)
}

// sendLeader sends a signal to the leader only. Without a pidfd, it first compares the leader's start time.
func (p *processes) sendLeader(signal unix.Signal) error {
	switch {
	case p.handle >= 0:
		return unix.PidfdSendSignal(p.handle, signal, nil, 0)
	case p.leader == 0 || processStart(p.leader) != p.start:
		return unix.ESRCH
	}
	return unix.Kill(p.leader, signal)
}

// signalMarked sends a signal to the processes with the run's id in their environment. found is true if there are such processes, or if the scan may have
// missed some.
func (p *processes) signalMarked(signal unix.Signal) (found bool) {
	if p.id == "" {
		return false
	}
	seen := p.sweeper.currentSight()
	for _, pid := range seen.byRun[p.id] {
		signalIf(pid, signal, func() bool { id, _ := proc.RunOf(pid); return id == p.id })
	}
	return len(seen.byRun[p.id]) > 0 || !seen.complete
}

// signalIf opens a pidfd of a process, and then sends the signal if holds returns true. This order prevents a signal to a later process with the same PID.
func signalIf(pid int, signal unix.Signal, holds func() bool) {
	handle, err := unix.PidfdOpen(pid, 0)
	if (errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM)) && holds() {
		_ = unix.Kill(pid, signal) // without pidfds: before Linux 5.3, and in some containers
	}
	if err != nil {
		return
	}
	defer unix.Close(handle)
	if holds() {
		_ = unix.PidfdSendSignal(handle, signal, nil, 0)
	}
}

// watchProcess opens a pidfd of the parent, which becomes readable when the parent exits. It returns -1 if that is not possible.
func watchProcess(pid int) int {
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil || os.Getppid() != pid { // the parent has exited, and the end of the pipe shows this as well
		return -1
	}
	return handle
}

func isPopulated(dir string) bool {
	return proc.Populated(os.ReadFile(filepath.Join(dir, "cgroup.events")))
}

// leaveCgroup moves this process from a cgroup to the parent cgroup and removes the cgroup, as the replica does when it ends. The parent cgroup accepts
// processes only if it has no controllers enabled. If the parent has other cgroups, which may need the controllers, leaveCgroup does nothing.
func leaveCgroup(dir string) {
	above := filepath.Dir(dir)
	if !proc.CgroupProcesses(dir)[os.Getpid()] || len(proc.CgroupsBelow(above)) > 1 {
		return
	}
	handed, _ := os.ReadFile(filepath.Join(above, "cgroup.subtree_control"))
	if names := strings.Fields(string(handed)); len(names) > 0 {
		_ = os.WriteFile(filepath.Join(above, "cgroup.subtree_control"), []byte("-"+strings.Join(names, " -")), 0)
	}
	_ = os.WriteFile(filepath.Join(above, "cgroup.procs"), []byte("0"), 0) // 0 means this process
	_ = proc.RemoveCgroup(dir)
}

// sweeper scans the processes of the machine, or of this PID namespace. All runs share one scan per round.
type sweeper struct {
	byNumber bool // the kernel can't signal a group through a pidfd
	latest   *sight
}

type sight struct {
	byRun    map[string][]int // PIDs by run id
	groups   map[int]bool     // process groups that have a living member
	complete bool             // false if the environment of a process could not be read because the process was in exec
}

func newSweeper() *sweeper { return &sweeper{} }

// beginRound discards the last scan, so that the next call of currentSight scans again.
func (s *sweeper) beginRound() { s.latest = nil }

func (s *sweeper) currentSight() *sight {
	if s.latest == nil {
		s.latest = scanProcesses()
	}
	return s.latest
}

func scanProcesses() *sight {
	seen := &sight{byRun: map[string][]int{}, groups: map[int]bool{}}
	all, err := proc.All()
	seen.complete = err == nil
	for _, p := range all {
		if p.PID == os.Getpid() || p.Dead() || p.Kernel() {
			continue
		}
		seen.groups[p.Group] = true
		switch id, known := proc.RunOf(p.PID); {
		case !known:
			seen.complete = false
		case id != "":
			seen.byRun[id] = append(seen.byRun[id], p.PID)
		}
	}
	return seen
}

// processStart returns the start time of a process in clock ticks since boot, or 0 if the process does not exist. It distinguishes processes that had the
// same PID.
func processStart(pid int) uint64 {
	p, _ := proc.Of(pid)
	return p.Start
}

// shieldHelper makes the helper small and hard to kill by accident. It leaves the working directory, closes inherited files, changes the process name so that
// killall does not hit it together with the replica, lowers the risk of being killed when memory is short, and keeps debuggers of the same user away.
// Failures are ignored. The prctl must come last, because after it the helper's files in /proc belong to root.
func shieldHelper() {
	_ = os.Chdir("/")
	closeInherited()
	_ = os.WriteFile("/proc/self/comm", []byte("warden"), 0)
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-900"), 0)
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// closeInherited closes the files that the replica inherited without the close-on-exec flag and so passed on to the helper. Go sets the flag on all files that
// it opens itself.
func closeInherited() {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, f := range files {
		fd, err := strconv.Atoi(f.Name())
		if err != nil || fd <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}

// bootTime returns CLOCK_BOOTTIME. This clock can't be set, and continues during suspend. It is the same for all processes of a machine.
func bootTime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // every kernel that Go supports has it
	return time.Duration(now.Nano())
}
