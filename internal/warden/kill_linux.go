package warden

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
)

// processes is the target on Linux: the run's process group, and its cgroup or, without one, the processes with the run's id in their environment. It
// sends signals by pidfds, which always refer to the same process or group, even after its number was reused.
type processes struct {
	sweeper *sweeper
	id      string // the CRONCLAVE_RUN_ID of the run's processes, or "" if they can't be found by it
	cgroup  string // directory of the cgroup, or ""
	leader  int    // 0 before it is known and after it was forgotten
	start   uint64 // of the leader, as a time
	handle  int    // pidfd of the leader, or -1
}

func (s *sweeper) newTarget(id, cgroup string) target {
	return &processes{sweeper: s, id: id, cgroup: cgroup, handle: -1}
}

// setLeader opens a pidfd of the leader. If another process has its number now, its birth differs from start.
func (p *processes) setLeader(leader int, start uint64) {
	p.forgetLeader()
	handle, err := unix.PidfdOpen(leader, 0)
	if err != nil {
		handle = -1
	}
	p.leader, p.start, p.handle = leader, start, handle
	if processStart(leader) != start { // the leader was reaped by another process: the replica is gone
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
		leader, pids := p.leader, proc.CgroupProcesses(p.cgroup) // before a trap of the leader can start other processes
		_ = p.sendLeader(unix.SIGTERM)                           // first, because a shell that saw its command end would start the next; wherever it is
		for pid := range pids {
			inside := func() bool { return pid != leader && proc.CgroupProcesses(p.cgroup)[pid] }
			signalIf(pid, unix.SIGTERM, inside)
		}
	case p.leader != 0:
		p.signalGroup(unix.SIGTERM)
	default: // the leader may have started a moment ago
		p.signalMarked(unix.SIGTERM)
	}
}

func (p *processes) killKnown() {
	if p.cgroup != "" && isPopulated(p.cgroup) {
		_ = os.WriteFile(filepath.Join(p.cgroup, "cgroup.kill"), []byte("1"), 0)
	}
	p.signalGroup(unix.SIGKILL)
}

// killRest kills the remaining processes. It removes an empty cgroup, so that no process can be born in it.
func (p *processes) killRest() (clean bool) {
	if p.cgroup != "" {
		return !isPopulated(p.cgroup) && proc.RemoveCgroup(p.cgroup) == nil && !p.groupLives()
	}
	found := p.signalMarked(unix.SIGKILL)
	return !found && !p.groupLives()
}

// groupLives reports whether the group has a living member. After the leader was reaped, another group may have its number. No signal is sent on this
// basis.
func (p *processes) groupLives() bool {
	return p.leader != 0 && p.sweeper.currentSight().groups[p.leader] && p.groupExists()
}

// groupExists reports whether the leader is unreaped or its group has members.
func (p *processes) groupExists() bool {
	err := p.sendGroup(0)
	return err == nil || errors.Is(err, unix.EPERM)
}

func (p *processes) signalGroup(signal unix.Signal) {
	if p.leader != 0 {
		_ = p.sendGroup(signal)
	}
}

// sendGroup sends a signal to the group by the leader's pidfd (Linux 6.9). An older kernel knows groups only by number. There the signal is sent only
// while the leader, alive or dead, has its number.
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

// sendLeader sends a signal to the leader only. Without a pidfd, the leader is identified by its birth.
func (p *processes) sendLeader(signal unix.Signal) error {
	switch {
	case p.handle >= 0:
		return unix.PidfdSendSignal(p.handle, signal, nil, 0)
	case p.leader == 0 || processStart(p.leader) != p.start:
		return unix.ESRCH
	}
	return unix.Kill(p.leader, signal)
}

// signalMarked sends a signal to the processes with the run's id in their environment. It reports whether there are any, or may be.
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

// signalIf sends a signal to a process if a condition holds after its pidfd was opened, so that the signal can't reach a later process with the same
// number.
func signalIf(pid int, signal unix.Signal, holds func() bool) {
	handle, err := unix.PidfdOpen(pid, 0)
	if (errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM)) && holds() {
		_ = unix.Kill(pid, signal) // no pidfds before Linux 5.3 and in some containers
	}
	if err != nil {
		return
	}
	defer unix.Close(handle)
	if holds() {
		_ = unix.PidfdSendSignal(handle, signal, nil, 0)
	}
}

// watchProcess opens a pidfd of the parent, which can be polled for its end. It returns -1 if there is none.
func watchProcess(pid int) int {
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil || os.Getppid() != pid { // the parent has ended, which the pipe shows as well
		return -1
	}
	return handle
}

// isPopulated reports whether a living process is in the cgroup or below it.
func isPopulated(dir string) bool {
	return proc.Populated(os.ReadFile(filepath.Join(dir, "cgroup.events")))
}

// leaveCgroup moves this process from a cgroup to the one above and removes the cgroup, as the replica does when it ends. The cgroup above accepts
// processes only if it has no controllers enabled. If another cgroup below it may need them, leave does nothing.
func leaveCgroup(dir string) {
	above := filepath.Dir(dir)
	if !proc.CgroupProcesses(dir)[os.Getpid()] || len(proc.CgroupsBelow(above)) > 1 {
		return
	}
	handed, _ := os.ReadFile(filepath.Join(above, "cgroup.subtree_control"))
	if names := strings.Fields(string(handed)); len(names) > 0 {
		_ = os.WriteFile(filepath.Join(above, "cgroup.subtree_control"), []byte("-"+strings.Join(names, " -")), 0)
	}
	_ = os.WriteFile(filepath.Join(above, "cgroup.procs"), []byte("0"), 0) // 0 is this process
	_ = proc.RemoveCgroup(dir)
}
