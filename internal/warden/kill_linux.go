package warden

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

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

// setLeader opens a pidfd of the leader. If the PID belongs to another process by now, the start time of that process differs from start.
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
		leader, pids := p.leader, proc.CgroupProcesses(p.cgroup) // listed before the SIGTERM, because the leader may handle it by starting other processes
		_ = p.sendLeader(unix.SIGTERM)                           // before the others, because a shell would start its next command when the current one ends
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

// groupLives reports whether the group has a living member. After the leader was reaped, the number may belong to another group. So the result is not used to
// send signals.
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

// sendGroup sends a signal to the group through the leader's pidfd (Linux 6.9). Older kernels address groups only by number. On these, the signal is sent
// only while the number belongs to the leader, dead or alive.
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

// signalIf sends a signal to a process if holds returns true after the pidfd was opened. This order prevents a signal to a later process with the same PID.
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

// isPopulated reports whether a living process is in the cgroup or below it.
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
