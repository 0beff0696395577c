package warden

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
)

// processes is the target on Linux: a cgroup where the run has one, else the processes with the run's id in their environment; and its process group.
// It sends signals through handles of the kernel (pidfds), which stand for a process or a group and never for a stranger that was given its number
// later.
type processes struct {
	sweeper *sweeper
	id      string // the CRONCLAVE_RUN_ID of the run's processes; "" if they are not to be told by it
	cgroup  string // its directory; "" if it has none
	leader  int    // 0 before it is known, and once it is forgotten
	start   uint64 // its birth
	handle  int    // of the leader; -1 where the kernel has none
}

func (s *sweeper) target(id, cgroup string) target {
	return &processes{sweeper: s, id: id, cgroup: cgroup, handle: -1}
}

// begun opens a handle of the leader. It is the right process: its number was not given back yet, or else the start differs.
func (p *processes) begun(leader int, start uint64) {
	p.forget()
	handle, err := unix.PidfdOpen(leader, 0)
	if err != nil {
		handle = -1
	}
	p.leader, p.start, p.handle = leader, start, handle
	if birth(leader) != start { // it was reaped by another: the replica is no more
		p.forget()
	}
}

func (p *processes) forget() {
	if p.handle >= 0 {
		unix.Close(p.handle)
	}
	p.leader, p.start, p.handle = 0, 0, -1
}

func (p *processes) terminate() {
	switch {
	case p.cgroup != "":
		leader, pids := p.leader, proc.CgroupProcesses(p.cgroup) // before the leader's trap can start others
		_ = p.sendLeader(unix.SIGTERM)                           // wherever it is, and first: a shell that saw its command end would go on with the next one
		for pid := range pids {
			inside := func() bool { return pid != leader && proc.CgroupProcesses(p.cgroup)[pid] }
			signalIf(pid, unix.SIGTERM, inside)
		}
	case p.leader != 0:
		p.signalGroup(unix.SIGTERM)
	default: // it may have started a moment ago
		p.signalMarked(unix.SIGTERM)
	}
}

func (p *processes) strike() {
	if p.cgroup != "" && populated(p.cgroup) {
		_ = os.WriteFile(filepath.Join(p.cgroup, "cgroup.kill"), []byte("1"), 0)
	}
	p.signalGroup(unix.SIGKILL)
}

// sweep removes an empty cgroup, so that nothing can be born in it any more.
func (p *processes) sweep() (clean bool) {
	if p.cgroup != "" {
		return !populated(p.cgroup) && proc.RemoveCgroup(p.cgroup) == nil && !p.groupLives()
	}
	found := p.signalMarked(unix.SIGKILL)
	return !found && !p.groupLives()
}

// groupLives returns whether the group has a living member. Its number may be a stranger's by now, once the leader was reaped;
// nothing is signalled on account of that.
func (p *processes) groupLives() bool {
	return p.leader != 0 && p.sweeper.look().groups[p.leader] && p.owned()
}

// owned returns whether the leader is not reaped yet, or members of its group are left.
func (p *processes) owned() bool {
	err := p.sendGroup(0)
	return err == nil || errors.Is(err, unix.EPERM)
}

func (p *processes) signalGroup(signal unix.Signal) {
	if p.leader != 0 {
		_ = p.sendGroup(signal)
	}
}

// sendGroup signals the group by the leader's handle (Linux 6.9). An older kernel knows groups by number only: there it is
// signalled as long as the leader, alive or dead, has the number.
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

// sendLeader signals the leader alone. Without handles it is known by its birth.
func (p *processes) sendLeader(signal unix.Signal) error {
	switch {
	case p.handle >= 0:
		return unix.PidfdSendSignal(p.handle, signal, nil, 0)
	case p.leader == 0 || birth(p.leader) != p.start:
		return unix.ESRCH
	}
	return unix.Kill(p.leader, signal)
}

// signalMarked signals the processes that have the run's id in their environment, and returns whether there are, or might be,
// any.
func (p *processes) signalMarked(signal unix.Signal) (found bool) {
	if p.id == "" {
		return false
	}
	seen := p.sweeper.look()
	for _, pid := range seen.byRun[p.id] {
		signalIf(pid, signal, func() bool { id, _ := proc.RunOf(pid); return id == p.id })
	}
	return len(seen.byRun[p.id]) > 0 || !seen.complete
}

// signalIf signals a process if a condition holds after its handle was opened, so that a later owner of the number is not hit.
func signalIf(pid int, signal unix.Signal, holds func() bool) {
	handle, err := unix.PidfdOpen(pid, 0)
	if (errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM)) && holds() {
		_ = unix.Kill(pid, signal) // no handles before Linux 5.3, and in some containers
	}
	if err != nil {
		return
	}
	defer unix.Close(handle)
	if holds() {
		_ = unix.PidfdSendSignal(handle, signal, nil, 0)
	}
}

// watchProcess opens a handle that can be polled for the end of our parent; -1 if there is none.
func watchProcess(pid int) int {
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil || os.Getppid() != pid { // it has ended, which the pipe shows, too
		return -1
	}
	return handle
}

// populated returns whether a living process is in the cgroup or below it.
func populated(dir string) bool {
	return proc.Populated(os.ReadFile(filepath.Join(dir, "cgroup.events")))
}

// leave removes a cgroup that this process is in, as its replica was: it goes to the one above. That takes processes only if it hands no controllers
// on, which another cgroup below it may need; then all stays as it is.
func leave(dir string) {
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
