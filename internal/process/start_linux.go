package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/starter"
)

// startsAtOnce is the number of starts that may run at the same time. A start that takes longer than slowStart does not count any more.
const startsAtOnce = 4

// launch is the start of a command by a starter process.
type launch struct {
	starter *exec.Cmd
	channel *os.File
	replies chan launchReply // has room for the only reply, so that exchangeOrder never blocks
}

type launchReply struct {
	starter.Reply
	err error // set if the starter exited without a reply
}

func newLaunch(order *starter.Order, cmd *exec.Cmd, t tree) (*launch, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket for a starter: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "starter")
	defer theirs.Close()
	if err := unix.SetNonblock(pair[0], true); err != nil {
		unix.Close(pair[0])
		return nil, fmt.Errorf("socket for a starter: %w", err)
	}
	l := &launch{channel: os.NewFile(uintptr(pair[0]), "starter"), replies: make(chan launchReply, 1)}
	l.starter = &exec.Cmd{Path: "/proc/self/exe", Args: []string{starter.Name}, Env: starterEnv(t), Stdout: cmd.Stdout, Stderr: cmd.Stderr,
		ExtraFiles: []*os.File{theirs}, SysProcAttr: &unix.SysProcAttr{Setpgid: true}}
	if c, ok := t.(*cgroup); ok {
		order.InCgroup = true
		l.starter.ExtraFiles = append(l.starter.ExtraFiles, c.fd)
	}
	if err := l.starter.Start(); err != nil {
		l.channel.Close()
		return nil, err
	}
	go l.exchangeOrder(order.Bytes())
	return l, nil
}

// starterEnv returns the environment of a starter. It contains the run's id, so that a search for the processes of the run finds the starter and its child even
// before the child has executed the command. It limits the Go runtime to two processors, because a fork blocks one of them.
func starterEnv(t tree) []string {
	env := []string{"GOMAXPROCS=2", "GOGC=off"}
	if g, ok := t.(group); ok && g.id != "" {
		env = append(env, proc.RunID+"="+g.id)
	}
	return env
}

// exchangeOrder sends the order to the starter and receives the reply. If the channel is closed early, the reply is an error.
func (l *launch) exchangeOrder(order []byte) {
	reply := make([]byte, starter.ReplySize)
	_, err := l.channel.Write(order)
	if err == nil {
		_, err = io.ReadFull(l.channel, reply)
	}
	if err != nil {
		l.replies <- launchReply{err: err}
		return
	}
	l.replies <- launchReply{Reply: starter.ParseReply(reply)}
}

// endStarter makes the starter exit. The starter's child becomes a child of this process, which is a subreaper.
func (l *launch) endStarter() error {
	l.channel.Close()
	return l.starter.Wait() //nolint:wrapcheck // the caller adds what failed
}

// starterOrder converts cmd to an order for a starter. cmd itself is not started.
func (s *Spec) starterOrder(cmd *exec.Cmd) *starter.Order {
	return &starter.Order{Path: cmd.Path, Dir: cmd.Dir, Argv: cmd.Args, Env: cmd.Environ(), Credential: cmd.SysProcAttr.Credential, Umask: s.Umask, Nice: s.Nice,
		DropInheritable: s.User != "", NoNewPrivs: s.NoNewPrivs}
}

// startOnce starts the command through a starter. If the context kill ends before the command was executed, startOnce aborts the start. An attached command is
// started directly, because a starter could not pass on all files of this process.
func (h *Host) startOnce(kill context.Context, cmd *exec.Cmd, s *Spec, t tree) (*os.Process, error) {
	if s.Attached {
		return startDirectly(kill, cmd, t)
	}
	l, err := newLaunch(s.starterOrder(cmd), cmd, t)
	if err != nil {
		return nil, err
	}
	select {
	case r := <-l.replies:
		return h.takeFromStarter(l, r, s, t)
	case <-kill.Done():
		return h.abortStart(l, cmd, s, t)
	}
}

// takeFromStarter makes the command a child of this process once its starter has replied.
func (h *Host) takeFromStarter(l *launch, r launchReply, s *Spec, t tree) (*os.Process, error) {
	if r.err != nil {
		err := l.endStarter()
		h.killLeaderless(t)
		return nil, fmt.Errorf("its starter has ended, and it is not known whether the command has begun (%w)", errors.Join(err, r.err))
	}
	if r.PID == 0 {
		_ = l.endStarter()
		return nil, s.refusalError(r.Reply)
	}
	p, err := os.FindProcess(r.PID) // the PID is not reused yet: the starter does not reap the child, and this process can't while the starter runs
	if err != nil {
		return nil, errors.Join(err, l.endStarter())
	}
	h.cells.orphans.spareChild(r.PID)
	_ = l.endStarter()
	return p, nil
}

func (s *Spec) refusalError(r starter.Reply) error {
	switch r.Step {
	case starter.Nice:
		return niceError(*s.Nice, r.Error)
	case starter.Privileges:
		return fmt.Errorf("%w: %w", errPrivileges, r.Error)
	}
	return r.Error
}

// killLeaderless kills the whole tree of a command whose PID is unknown.
func (h *Host) killLeaderless(t tree) {
	switch t := t.(type) {
	case *cgroup:
		pollUntil(context.Background(), func() bool {
			_, _ = t.killer.WriteString("1")
			return !t.isPopulated()
		})
	case group:
		if t.escaped != nil {
			t.escaped.killRun(t.id)
		}
	}
}

// hangLooks is the number of successive checks that must find a killed child in uninterruptible sleep before its start is abandoned.
const hangLooks = 5

// abortStart kills the starter's child, unless the child has executed the command. It does not wait for a child in uninterruptible sleep in the kernel. Such
// a child has got SIGKILL and executes nothing any more, but exists until the sleep ends.
func (h *Host) abortStart(l *launch, cmd *exec.Cmd, s *Spec, t tree) (*os.Process, error) {
	for looks := 0; ; {
		hung := killUnexecuted(l.starter.Process.Pid, t)
		timer := time.NewTimer(abortEvery)
		select {
		case r := <-l.replies:
			timer.Stop()
			p, err := h.takeFromStarter(l, r, s, t)
			if err != nil || !h.reapUnexecuted(p) {
				return p, err
			}
			return nil, hangError(cmd, "hung, and was killed")
		case <-timer.C:
		}
		if looks++; hung == 0 {
			looks = 0
		}
		if looks == hangLooks {
			h.leaveHanging(l, hung, cmd, t)
			return nil, stillHangs{hangError(cmd, "hangs")}
		}
	}
}

// reapUnexecuted reports whether the child died before it executed the command, and reaps such a child. The starter reports such a child as started, because
// syscall.ForkExec takes the end of its status pipe for a successful exec.
func (h *Host) reapUnexecuted(p *os.Process) bool {
	if hasExecuted(p.Pid) || awaitExit(p.Pid) != nil || hasExecuted(p.Pid) {
		return false
	}
	_, _ = h.reapCommand(p)
	return true
}

// killUnexecuted kills a starter's child that has not executed the command yet. It returns the PID of a child that stays in uninterruptible sleep after
// SIGKILL, or 0.
func killUnexecuted(starter int, t tree) (hung int) {
	if c, ok := t.(*cgroup); ok {
		_, _ = c.killer.WriteString("1")
	}
	for _, p := range proc.ChildrenOf(starter) {
		if p.Dead() || hasExecuted(p.PID) { // the child may have executed the command since the list was read
			continue
		}
		_ = unix.Kill(p.PID, unix.SIGKILL)
		if now, ok := proc.Of(p.PID); ok && now.Uninterruptible() && !now.Executed() && proc.Killed(p.PID) {
			hung = p.PID
		}
	}
	return hung
}

// leaveHanging abandons a child that hangs in the kernel. The command is not started again until the child is gone: see [stuck].
func (h *Host) leaveHanging(l *launch, child int, cmd *exec.Cmd, t tree) {
	p, err := os.FindProcess(child)
	h.cells.orphans.spareChild(child)
	_ = l.starter.Process.Kill()
	h.stuck.holdStart(startKey(cmd), func() {
		_ = l.endStarter()
		if err == nil {
			_, _ = h.reapCommand(p)
		}
		t.remove()
	})
}

func (h *Host) reapCommand(p *os.Process) (*os.ProcessState, error) {
	defer h.cells.orphans.releaseChild(p.Pid)
	return p.Wait() //nolint:wrapcheck // the caller adds what failed
}

// hasExecuted reports whether an unreaped child has executed a program. It returns true if this is unknown.
func hasExecuted(pid int) bool {
	p, ok := proc.Of(pid)
	return !ok || p.Executed()
}

// setNice sets the priority of this thread and of the processes that it starts.
func setNice(n int) error {
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, n); err != nil {
		return niceError(n, err)
	}
	return nil
}

// checkNice returns an error if this process may not set the priority: a priority above its own needs CAP_SYS_NICE or RLIMIT_NICE. It sets the priority of a
// thread that ends afterwards, so that no other work runs with that priority.
func checkNice(n int) error {
	return onThread(func() error { return setNice(n) })
}

// onThread calls f on a thread that runs nothing else before or afterwards.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			done <- f()
			return // the goroutine is still locked, so the thread ends
		}
		// The main thread represents the process in /proc and never ends. Keep it busy, and use another thread.
		defer runtime.UnlockOSThread()
		done <- onThread(f)
	}()
	return <-done
}

// markAll sets the close-on-exec flag of all file descriptors from 3 on (Linux 5.11).
func markAll() error { return unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) }
