//go:build linux || darwin

package process

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

// killWarning is the time that processes may survive SIGKILL before a warning is logged.
const killWarning = 5 * time.Second

// Host runs commands on this machine. A process should have only one: on Linux it makes the process a subreaper, and reaps the orphans that become
// its children. It is safe for concurrent use.
type Host struct {
	log       hclog.Logger
	cells     *cells
	warden    Warden        // nil for none
	oom       oomCounter    // counts kills in the cgroup in which this process was started
	leftGrace time.Duration // the constant leftGrace; tests set other values
	buffers   sync.Pool     // *bufio.Reader of maxLine bytes, for the output of runs
	turns     chan struct{} // has one element per running start
	stuck     stuck
}

// NewHost prepares this machine to run commands: on Linux it creates a cgroup for the replica and starts to reap orphans. It returns no error if the machine
// has no cgroups: see [Host.Isolation].
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

// Isolation describes in one line how the processes of a run are kept together, for the log of the start.
func (h *Host) Isolation() string { return h.cells.describe() }

// Close removes the replica's cgroup and ends the reaper. Call it after the last Run has returned.
func (h *Host) Close() error {
	if !h.stuck.wait(removeTime) {
		h.log.Warn("starts of commands still hang in the kernel; they were killed, and execute nothing any more")
	}
	return h.cells.close()
}

// Check returns an error if this machine can't provide the Nice ([ErrNice]) or the Limits ([ErrLimits]) of a [Spec]. Limits need a cgroup (version 2) whose
// controllers work in the cgroups below it. Check enables the controllers, and may move this process and its children to another cgroup for that. Call it
// before the first Run.
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
// When stop ends, the tree gets SIGTERM. When kill ends, the tree gets SIGKILL. Between the two, processes that outlive the command may continue. If the
// command exits before stop ends, the processes that it left behind get SIGTERM, and SIGKILL after two seconds or after Spec.KillGrace, whichever is less:
// see [Exit.Left]. If stop or kill has ended already, Run starts nothing.
//
// Run does not return while a process survives SIGKILL: a process that hangs in the kernel, or, if this process is not root and has no cgroup, a process that
// has changed its user.
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
		if _, hangs := errors.AsType[stillHangs](err); !hangs { // if the start still hangs, leaveHanging removes the tree later
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

// superviseRun passes stop, kill and signals on to the tree. Once the whole tree is dead, it returns the result of the command. The result lists the
// processes that were left behind, and what the warden did.
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
			awaitMembers(kill, t, leader, signalGrace)
		}
		exit.Left = h.stopLeft(kill, s, t, leader, ward)
	}
	killTree()
	defer outlived.Stop()
	ours.returnTerminal()
	exit.noteWarden(ward.Reap())
	state, err := h.reapCommand(p) // from here on the kernel may reuse the leader's PID
	t.awaitDeath(leader)
	exit.noteState(state, errors.Join(failed, err))
	return exit
}

// noteWarden records what the warden did to the run. If the warden intervened, Left is cleared, because the command left nothing behind by itself.
func (e *Exit) noteWarden(late bool, ago time.Duration) {
	if e.Late = late; late {
		e.Left = nil
	}
	if ago > 0 {
		e.Killed = time.Now().Add(-ago)
	}
}

// noteState records the exit status of a started command. err is the error of waiting for the command.
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
