//go:build linux || darwin

package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

// killWarning is the time that processes may outlive SIGKILL before a warning is logged.
const killWarning = 5 * time.Second

// Host runs commands on this machine. A process should have only one: on Linux it makes the process a subreaper, and reaps the orphans that become
// its children. It is safe for concurrent use.
type Host struct {
	log       hclog.Logger
	cells     *cells
	warden    Warden        // nil for none
	oom       oomCounter    // of the cgroup in which this process was started
	leftGrace time.Duration // defaults to the constant
	buffers   sync.Pool     // *bufio.Reader of maxLine bytes, for the output of runs
	turns     chan struct{} // has one element per start that is under way
	stuck     stuck
}

// NewHost prepares the means of this machine to hold processes together: on Linux a cgroup for the replica, and the reaper of orphans. A lack of
// means is not an error: see [Host.Isolation].
func NewHost(c HostConfig) (*Host, error) {
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return newHost(c.Logger, newCells(c.Logger), c.Warden), nil
}

func newHost(log hclog.Logger, c *cells, w Warden) *Host {
	h := &Host{log: log, cells: c, warden: w, oom: newOOMCounter(), leftGrace: leftGrace, turns: make(chan struct{}, startsAtOnce)}
	for _, dir := range c.cgroupDirs() {
		if w != nil {
			w.Inherit(dir)
		}
	}
	h.buffers.New = func() any { return bufio.NewReaderSize(nil, maxLine) }
	return h
}

// Isolation describes in one line the means that hold the processes of a run together, for the start log.
func (h *Host) Isolation() string { return h.cells.describe() }

// Close removes the replica's cgroup and ends the reaper. Call it after the last Run has returned.
func (h *Host) Close() error {
	if !h.stuck.wait(removeTime) {
		h.log.Warn("starts of commands still hang in the kernel; they were killed, and execute nothing any more")
	}
	return h.cells.close()
}

// Check returns an error for the parts of a [Spec] that this machine can never provide: its Nice ([ErrNice]) and its Limits ([ErrLimits]). Limits
// need a cgroup (version 2) whose controllers work in the cgroups below it. Check prepares it if possible, and may move this process and its children
// to a cgroup of their own for that. Call it before the first Run.
func (h *Host) Check(s Spec) error {
	var faults []error
	if s.Nice != nil {
		faults = append(faults, checkNice(*s.Nice))
	}
	if s.Limits != (Limits{}) {
		faults = append(faults, h.cells.allowLimits(s.Limits))
	}
	return errors.Join(faults...)
}

// Run starts the command and blocks until the command and all its descendants are dead.
//
// When stop is done, the tree gets SIGTERM, and when kill is done, SIGKILL. In between, processes that outlive the command may go on. If the command
// ends without a stop, the processes that it left behind get SIGTERM, and SIGKILL after two seconds, or after Spec.KillGrace if that is less: see
// [Exit.Left]. If stop or kill is done already, nothing is started.
//
// Run does not return while a process survives SIGKILL. A process does if it hangs in the kernel, or if it has changed its user while this process is
// not root and has no cgroup.
func (h *Host) Run(stop, kill context.Context, s Spec) Exit {
	for _, c := range []context.Context{kill, stop} {
		if c.Err() != nil {
			return refusedExit(fmt.Errorf("%w: %w", ErrNotStarted, context.Cause(c)))
		}
	}
	cmd, err := s.newCommand(stop)
	if err != nil {
		return refusedExit(markNotStarted(err))
	}
	if s.account != "" {
		h.log.Debug("account looked up", "job", s.Job, "run_id", s.Name, "user", s.User, "group", s.Group, "account", s.account)
	}
	out, err := s.newStdio(&h.buffers)
	if err != nil {
		return refusedExit(markNotStarted(err))
	}
	defer out.close()
	t, err := h.cells.newTree(&s)
	if err != nil {
		return refusedExit(markNotStarted(err))
	}
	ward, unwatch, err := s.registerRun(stop, h.warden, t)
	if err != nil {
		t.remove()
		return refusedExit(fmt.Errorf("%w: %w", ErrNotStarted, err))
	}
	defer unwatch()
	t.placeLeader(cmd.SysProcAttr)
	out.attach(cmd)
	ours := s.newAttendance()
	kills := h.oom.killCount()
	leader, err := h.startInTurn(stop, kill, cmd, &s, t)
	if err != nil {
		ours.returnTerminal()
		exit := refusedExit(h.whyNotStarted(cmd, &s, t, err))
		exit.Late, _ = ward.Reap()
		if _, hangs := errors.AsType[stillHangs](err); !hangs { // otherwise the tree is removed when the start has ended
			t.remove()
		}
		return exit
	}
	defer t.remove()
	ward.Started(leader.Pid)
	if s.Started != nil {
		s.Started()
	}
	out.startReading()
	ours.onStart(leader.Pid)
	exit := h.superviseRun(stop, kill, leader, &s, t, ward, ours)
	if !out.drain(drainTime) {
		h.log.Warn("output held open by a process outside the run's tree; rest not read", "run_id", s.Name)
	}
	exit.Tail, exit.Cut = out.tail(), out.bytesBefore()
	if exit.Status() != 0 {
		exit.OutOfMemory, exit.OOMKills = t.outOfMemory(), max(h.oom.killCount()-kills, 0)
	}
	ours.passInterrupt(exit)
	return exit
}

// superviseRun passes stop, kill and signals on to the tree. It returns the end of the command, once the whole tree is dead, with the processes that
// were left behind and with what the warden did.
func (h *Host) superviseRun(stop, kill context.Context, p *os.Process, s *Spec, t tree, ward Ward, ours *attendance) (exit Exit) {
	leader := p.Pid
	ended := make(chan error, 1)
	go func() { ended <- awaitExit(leader) }()

	var failed error
	var outlived *time.Timer
	killTree := func() {
		if outlived == nil {
			outlived = time.AfterFunc(killWarning, func() {
				h.log.Warn("processes of a run outlive SIGKILL; waiting for them", "process_group", leader)
			})
		}
		t.kill(leader)
	}
	asked := false
	for stopping, killing, running := stop.Done(), kill.Done(), true; running; {
		select {
		case <-stopping:
			stopping, asked = nil, true
			t.terminate(leader)
			ward.Told()
		case <-killing:
			killing, asked = nil, true
			killTree()
		case signal := <-ours.signals:
			ours.passSignal(signal)
		case failed = <-ended:
			running = false
		}
	}
	if asked {
		pollUntil(kill, func() bool { return !t.membersAlive(leader) })
	} else {
		if len(ours.passed) > 0 || ours.terminal != nil {
			awaitSignaled(kill, t, leader)
		}
		exit.Left = h.stopLeft(kill, s, t, leader, ward)
	}
	killTree()
	defer outlived.Stop()
	ours.returnTerminal()
	exit.noteWarden(ward.Reap())
	state, err := h.reapCommand(p) // from here on another process may have the leader's PID
	t.awaitDeath(leader)
	exit.noteState(state, errors.Join(failed, err))
	return exit
}

// noteWarden records what the warden did to the run. A process that the warden killed was not left behind.
func (e *Exit) noteWarden(late bool, ago time.Duration) {
	if e.Late = late; late {
		e.Left = nil
	}
	if ago > 0 {
		e.Killed = time.Now().Add(-ago)
	}
}

// noteState records how a started command has ended. err is the error of waiting for it.
func (e *Exit) noteState(state *os.ProcessState, err error) {
	if state == nil {
		e.Code, e.Err = -1, fmt.Errorf("wait for the command: %w", err)
		return
	}
	e.Code = state.ExitCode()
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal = signalName(ws.Signal())
	}
}
