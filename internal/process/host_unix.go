//go:build linux || darwin

package process

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/safefile"
)

// killWarning is the time that processes may survive SIGKILL before a warning is logged.
const killWarning = 5 * time.Second

// Host runs commands on this machine. A process should have only one Host: on Linux, a Host makes its process a subreaper, and reaps the orphans that become
// children of the process. Host is safe for concurrent use.
type Host struct {
	log       hclog.Logger
	cells     *cells
	warden    Warden
	oom       oomCounter    // counts kills in the cgroup in which this process was started
	leftGrace time.Duration // the constant leftGrace; tests set other values
	buffers   sync.Pool     // *bufio.Reader of maxLine bytes, for the output of runs
	turns     chan struct{} // has one element per running start
	stuck     stuck
}

// NewHost prepares this machine to run commands: on Linux it creates a cgroup for the replica and starts to reap orphans. It returns no error if the machine
// has no cgroups: see [Host.Isolation].
func NewHost(c HostConfig) (*Host, error) {
	c.Logger = cmp.Or[hclog.Logger](c.Logger, hclog.NewNullLogger())
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

// Isolation returns a line for the log that names the mechanism, cgroup or process group, by which the processes of a run are found.
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
// When stop ends, the tree gets SIGTERM, and may continue until kill ends, even if the command exits earlier. When kill ends, the tree gets SIGKILL. If the
// command exits before stop ends, the processes that it left behind get SIGTERM, and SIGKILL after two seconds or after Spec.KillGrace, whichever is less:
// see [Exit.Left]. If stop or kill has ended already, Run starts nothing.
//
// Run does not return while a process survives SIGKILL. A process survives if it hangs in the kernel, or if it has changed its user while this process is not
// root and has no cgroup.
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

// superviseRun passes stop, kill and signals on to the tree, and returns the result of the command once the whole tree is dead.
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

const (
	// abortEvery is the interval at which a hanging start is checked after its context kill has ended.
	abortEvery = 20 * time.Millisecond
	// slowStart is the time after which a start gives up its turn, because it may hang and must not block other starts.
	slowStart = 200 * time.Millisecond
)

// markNotStarted wraps the error of a start in [ErrNotStarted] if the command is not at fault: the machine or the warden lacks a resource, or a file system
// does not answer.
func markNotStarted(err error) error {
	if err == nil || errors.Is(err, ErrNotStarted) || !proc.IsExhausted(err) && !errors.Is(err, safefile.ErrUnanswered) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotStarted, err)
}

// startInTurn starts the command once fewer than startsAtOnce starts are running. If stop or kill ends during the wait, it returns an error.
func (h *Host) startInTurn(stop, kill context.Context, cmd *exec.Cmd, s *Spec, t tree) (*os.Process, error) {
	if h.stuck.has(startKey(cmd)) {
		return nil, hangError(cmd, "still hangs since an earlier start")
	}
	if err := h.awaitTurn(stop, kill); err != nil {
		return nil, err
	}
	next := sync.OnceFunc(func() { <-h.turns })
	defer next()
	defer time.AfterFunc(slowStart, next).Stop()
	if s.Begin != nil {
		if err := s.Begin(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
		}
	}
	return h.startAgain(kill, cmd, s, t, next)
}

func (h *Host) awaitTurn(stop, kill context.Context) error {
	select {
	case h.turns <- struct{}{}:
		return nil
	case <-stop.Done():
		return fmt.Errorf("%w: %w", ErrNotStarted, context.Cause(stop))
	case <-kill.Done():
		return fmt.Errorf("%w: %w", ErrNotStarted, context.Cause(kill))
	}
}

const (
	// busyTime bounds the retries of a start whose program is open for writing, and absentTime the retries of a start whose program is missing. In both cases
	// an update may be replacing the program.
	busyTime, absentTime = 10 * time.Second, time.Second
	// The pauses between two tries to start the same command grow from firstRetry to lastRetry.
	firstRetry, lastRetry = 20 * time.Millisecond, 250 * time.Millisecond
)

// startAgain starts the command, and retries while an update seems to be replacing its program. After the first failure it gives up its turn to other starts.
func (h *Host) startAgain(kill context.Context, cmd *exec.Cmd, s *Spec, t tree, next func()) (*os.Process, error) {
	pause := backoff.New(firstRetry, lastRetry)
	for since := time.Now(); ; {
		p, err := h.startOnce(kill, cmd, s, t)
		passed := time.Since(since)
		again := errors.Is(err, syscall.ETXTBSY) && passed < busyTime || errors.Is(err, syscall.ENOENT) && passed < absentTime && t.missingPart() == nil
		if !again || s.Attached || !pause.Wait(kill) {
			return p, err
		}
		next()
	}
}

// startDirectly starts the command without a starter. If the context kill ends first, it kills the forked process, unless that process has executed the
// command.
func startDirectly(kill context.Context, cmd *exec.Cmd, t tree) (*os.Process, error) {
	done := make(chan error, 1)
	go func() { done <- cmd.Start() }()
	select {
	case err := <-done:
		return cmd.Process, err
	case <-kill.Done():
	}
	for {
		killUnexecuted(os.Getpid(), t)
		timer := time.NewTimer(abortEvery)
		select {
		case err := <-done:
			timer.Stop()
			if err == nil && !hasExecuted(cmd.Process.Pid) && awaitExit(cmd.Process.Pid) == nil && !hasExecuted(cmd.Process.Pid) {
				_ = cmd.Wait()
				return nil, hangError(cmd, "hung, and was killed")
			}
			return cmd.Process, err
		case <-timer.C:
		}
	}
}

// whyNotStarted returns the error of a command that could not be started. If a resource was missing but the machine can start other processes, the error
// blames the limits of the run or of the user.
func (h *Host) whyNotStarted(cmd *exec.Cmd, s *Spec, t tree, err error) error {
	if errors.Is(err, ErrNotStarted) {
		return err
	}
	why := s.startError(cmd, t, err)
	if errors.Is(err, syscall.ETXTBSY) {
		return fmt.Errorf("%w: %w", ErrNotStarted, why)
	}
	if errors.Is(err, syscall.EAGAIN) && cmd.SysProcAttr.Credential != nil && h.Probe() == nil { // limits of the run permit at least one process
		return s.userLimit(cmd.Path)
	}
	if proc.IsExhausted(err) && s.Limits != (Limits{}) && h.Probe() == nil {
		return fmt.Errorf("%w: %w", ErrLimits, why)
	}
	return markNotStarted(why)
}

// userLimit returns the error for a user with as many processes as the kernel permits. It does not wrap EAGAIN: callers would take EAGAIN for a shortage of
// the whole machine, although commands of other users still start.
func (s *Spec) userLimit(path string) error {
	return fmt.Errorf("start %s: %w: the user %s may have %s processes and threads (RLIMIT_NPROC of cronclave, \"LimitNPROC=\" of its service)", path, ErrUserLimit, s.User,
		processLimit())
}

const probeTime = 10 * time.Second

// Probe returns an error if no command could be started now. It uses the same resources as a run, but executes a program that does not exist. It does not
// wait for its turn, because hanging starts may hold all turns.
func (h *Host) Probe() error {
	late, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	out, err := newCapture(&Spec{}, &h.buffers)
	if err != nil {
		return err
	}
	defer out.close()
	nothing := filepath.Join("/proc/self/fd", "nothing")
	cmd := &exec.Cmd{Path: nothing, Args: []string{nothing}, Env: []string{}, SysProcAttr: &syscall.SysProcAttr{}}
	out.attach(cmd)
	_, err = h.startOnce(late, cmd, &Spec{}, group{})
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return fmt.Errorf("start a program: %w", err)
}

// registerRun registers a run with the warden, if there is one. end removes the registration.
func (s *Spec) registerRun(ctx context.Context, w Warden, t tree) (ward Ward, end func(), err error) {
	if w == nil {
		return unwatched{}, func() {}, nil
	}
	r := Watched{Name: s.Name, Job: s.Job, Grace: s.KillGrace}
	t.describe(&r)
	if s.Lease != nil {
		r.Deadline, r.Lease = s.Lease.Deadline(), s.Lease.Length()
	}
	ward = w.Watch(r)
	end = ward.Release
	if s.Lease != nil { // subscribe before waiting for the warden, because registering may take longer than the lease lasts
		stop := s.Lease.OnExtend(ward.Extend)
		end = func() { stop(); ward.Release() }
		ward.Extend(s.Lease.Deadline()) // the lease may have been extended since Watch
	}
	if err = ward.Known(ctx); err != nil {
		end()
		return nil, nil, err
	}
	return ward, end, nil
}

// unwatched is the [Ward] of a run without a warden.
type unwatched struct{}

func (unwatched) Known(context.Context) error { return nil }
func (unwatched) Started(int)                 {}
func (unwatched) Extend(time.Duration)        {}
func (unwatched) Told()                       {}
func (unwatched) Reap() (bool, time.Duration) { return false, 0 }
func (unwatched) Release()                    {}

// leftGrace is the time between SIGTERM and SIGKILL for processes that a command left behind when it exited by itself. It is long enough to remove a lock
// file, and short because the run keeps its slot during this time.
const leftGrace = 2 * time.Second

// signalGrace bounds the wait for the rest of the process group after the command has exited, if the group may have got a signal, such as the SIGINT of
// Ctrl-C. The signal may be about to end the other processes too. Processes that live longer count as left behind.
const signalGrace = 500 * time.Millisecond

// awaitMembers waits until no process of the command is alive, the context kill ends, or the time within is over. The dead leader does not count.
func awaitMembers(kill context.Context, t tree, leader int, within time.Duration) {
	limit, cancel := context.WithTimeout(kill, within)
	defer cancel()
	pollUntil(limit, func() bool { return !t.membersAlive(leader) })
}

// stopLeft sends SIGTERM to the processes that a command left behind, and returns the names of their programs. It waits until these processes are dead, at
// most for leftGrace or Spec.KillGrace, whichever is less.
func (h *Host) stopLeft(kill context.Context, s *Spec, t tree, leader int, ward Ward) []string {
	left := t.leftPrograms(leader)
	if len(left) == 0 || kill.Err() != nil {
		return nil
	}
	h.log.Warn("run left processes behind; stopping them", "job", s.Job, "run_id", s.Name, "processes", len(left), "programs", ListPrograms(left))
	t.terminate(leader)
	ward.Told()
	awaitMembers(kill, t, leader, min(h.leftGrace, s.KillGrace))
	return left
}
