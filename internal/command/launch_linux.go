package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/starter"
)

// startsAtOnce is the number of starts that go on at the same time, not counting slow ones.
const startsAtOnce = 4

// launch is a start that a starter process carries out.
type launch struct {
	starter *exec.Cmd
	channel *os.File
	replies chan launchReply // buffered for the only reply
}

type launchReply struct {
	starter.Reply
	err error // set if the starter has ended without a reply
}

// newLaunch executes a starter and sends it an order.
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
	go l.exchange(order.Bytes())
	return l, nil
}

// starterEnv returns the environment of a starter. It contains the run's id, by which the starter and its child are found until the child has
// executed the command. It limits the runtime to two processors: a fork blocks one of them.
func starterEnv(t tree) []string {
	env := []string{"GOMAXPROCS=2", "GOGC=off"}
	if g, ok := t.(group); ok && g.id != "" {
		env = append(env, proc.RunID+"="+g.id)
	}
	return env
}

// exchange sends the order and receives the reply. It returns when the channel is closed.
func (l *launch) exchange(order []byte) {
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

// end ends the starter. The starter's child becomes a child of this process, which is a subreaper.
func (l *launch) end() error {
	l.channel.Close()
	return l.starter.Wait() //nolint:wrapcheck // the caller does
}

// order returns the order for a starter. cmd itself is never started.
func (s *Spec) order(cmd *exec.Cmd) *starter.Order {
	return &starter.Order{Path: cmd.Path, Dir: cmd.Dir, Argv: cmd.Args, Env: cmd.Environ(), Credential: cmd.SysProcAttr.Credential, Umask: s.Umask, Nice: s.Nice,
		DropInheritable: s.User != "", NoNewPrivs: s.NoNewPrivs}
}

// start starts the command through a starter. When kill ends it ends the start, unless the command was executed already. An attached command is
// started directly, because a starter could not pass on all files of this process.
func (h *Host) start(kill context.Context, cmd *exec.Cmd, s *Spec, t tree) (*os.Process, error) {
	if s.Attached {
		return startDirectly(kill, cmd, t)
	}
	l, err := newLaunch(s.order(cmd), cmd, t)
	if err != nil {
		return nil, err
	}
	select {
	case r := <-l.replies:
		return h.adopt(l, r, s, t)
	case <-kill.Done():
		return h.abort(l, cmd, s, t)
	}
}

// adopt takes the command over from its starter.
func (h *Host) adopt(l *launch, r launchReply, s *Spec, t tree) (*os.Process, error) {
	if r.err != nil {
		err := l.end()
		h.eradicate(t)
		return nil, fmt.Errorf("its starter has ended, and it is not known whether the command has begun (%w)", errors.Join(err, r.err))
	}
	if r.PID == 0 {
		_ = l.end()
		return nil, s.refusal(r.Reply)
	}
	p, err := os.FindProcess(r.PID) // the starter has not ended, so the PID is not reaped yet
	if err != nil {
		return nil, errors.Join(err, l.end())
	}
	h.cells.orphans.spare(r.PID)
	_ = l.end()
	return p, nil
}

// refusal returns the error with which a starter has not started the command.
func (s *Spec) refusal(r starter.Reply) error {
	switch r.Step {
	case starter.Nice:
		return niceError(*s.Nice, r.Error)
	case starter.Privileges:
		return fmt.Errorf("%w: %w", errPrivileges, r.Error)
	}
	return r.Error
}

// eradicate kills a whole tree whose leader is unknown.
func (h *Host) eradicate(t tree) {
	switch t := t.(type) {
	case *cgroup:
		poll(context.Background(), func() bool {
			_, _ = t.killer.WriteString("1")
			return !t.populated()
		})
	case group:
		if t.escaped != nil {
			t.escaped.sweep(t.id)
		}
	}
}

// hangLooks is the number of times in a row that a killed child is seen in uninterruptible sleep before its start is given up.
const hangLooks = 5

// abort kills the starter's child, unless the child has executed the command. It does not wait for a child in uninterruptible sleep in the kernel.
// That child has got SIGKILL and executes nothing any more, but it stays until the sleep ends.
func (h *Host) abort(l *launch, cmd *exec.Cmd, s *Spec, t tree) (*os.Process, error) {
	for looks := 0; ; {
		hung := killUnexecuted(l.starter.Process.Pid, t)
		timer := time.NewTimer(abortEvery)
		select {
		case r := <-l.replies:
			timer.Stop()
			p, err := h.adopt(l, r, s, t)
			if err != nil || !h.unexecuted(p) {
				return p, err
			}
			return nil, hanging(cmd, "hung, and was killed")
		case <-timer.C:
		}
		if looks++; hung == 0 {
			looks = 0
		}
		if looks == hangLooks {
			h.leave(l, hung, cmd, t)
			return nil, stillHangs{hanging(cmd, "hangs")}
		}
	}
}

// unexecuted reaps a child that died before it executed the command, and reports whether there was one. The runtime of the starter takes such a child
// for a started command.
func (h *Host) unexecuted(p *os.Process) bool {
	if executed(p.Pid) || awaitExit(p.Pid) != nil || executed(p.Pid) {
		return false
	}
	_, _ = h.reap(p)
	return true
}

// killUnexecuted kills a starter's child that has not executed the command yet. It returns the PID of a child that is in uninterruptible sleep in the
// kernel after SIGKILL, or 0.
func killUnexecuted(starter int, t tree) (hung int) {
	if c, ok := t.(*cgroup); ok {
		_, _ = c.killer.WriteString("1")
	}
	for _, p := range proc.ChildrenOf(starter) {
		if p.Dead() || executed(p.PID) { // it may have since the list was read
			continue
		}
		_ = unix.Kill(p.PID, unix.SIGKILL)
		if now, ok := proc.Of(p.PID); ok && now.Uninterruptible() && !now.Executed() && proc.Killed(p.PID) {
			hung = p.PID
		}
	}
	return hung
}

// leave abandons a child that hangs. Its command is not started again until the child is gone: see [stuck].
func (h *Host) leave(l *launch, child int, cmd *exec.Cmd, t tree) {
	p, err := os.FindProcess(child)
	h.cells.orphans.spare(child)
	_ = l.starter.Process.Kill()
	h.stuck.hold(startKey(cmd), func() {
		_ = l.end()
		if err == nil {
			_, _ = h.reap(p)
		}
		t.remove()
	})
}

// reap waits for the command and releases its PID.
func (h *Host) reap(p *os.Process) (*os.ProcessState, error) {
	defer h.cells.orphans.release(p.Pid)
	return p.Wait() //nolint:wrapcheck // the caller does
}
