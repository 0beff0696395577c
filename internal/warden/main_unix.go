//go:build linux || darwin

package warden

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
)

const (
	// checkEvery bounds the sleep while there are deadlines, because the kernel's timers stop during suspend.
	checkEvery = 200 * time.Millisecond
	// giveUp bounds the wait for processes that do not die of SIGKILL because they hang in the kernel.
	giveUp = time.Minute
)

// Main is the helper. It reads the runs to watch from in, writes acknowledgements and reports to out, and kills runs. It returns when the replica has
// ended and no process of its runs is left. The process must serve no other purpose: Main changes its signals, its working directory and its open
// files.
func Main(in, out *os.File) error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	report := openReport()
	defer report.closeWriter()
	k := &helperMain{report: report, in: int(in.Fd()), out: int(out.Fd()), buffer: make([]byte, 64<<10), replica: -1, bases: map[string]bool{}, sweeper: newSweeper()}
	k.list = watchlist{runs: map[uint64]*entry{}, tell: k.reportAction}
	if err := unix.SetNonblock(k.out, true); err != nil {
		return fmt.Errorf("the warden is started by the replica itself, with pipes: %w", err)
	}
	shieldHelper()
	return k.run()
}

// helperMain is the state of the helper. It is used by one goroutine.
type helperMain struct {
	report  *report
	in, out int
	buffer  []byte
	input   lines
	list    watchlist
	sweeper *sweeper
	bases   map[string]bool // cgroups to remove at the end

	replica  int    // pidfd of the replica, or -1
	greeted  bool   // whether hello was read
	done     uint64 // the latest message that was acted on
	answered uint64 // the latest message that was acknowledged
	closed   bool   // end of file on the pipe: the replica is gone, and so is each child that it had forked and that had not called exec yet
	gone     bool   // the replica has ended
	goneAt   time.Duration
}

func (k *helperMain) run() error {
	for {
		now := bootTime()
		k.sweeper.beginRound()
		if k.gone {
			k.list.killAll(now)
		}
		k.list.judgeRuns(now)
		if k.gone && (k.closed && k.list.allDead() || now > k.goneAt+giveUp) {
			break
		}
		if err := k.awaitInput(now); err != nil {
			return err
		}
		k.sendAck()
	}
	if len(k.list.runs) > 0 {
		k.report.Warn("warden ends", "reason", k.endReason(), "runs_killed", len(k.list.runs))
	}
	for base := range k.bases {
		_ = proc.RemoveCgroup(base) // processes that are left hang in the kernel; the next replica removes the cgroup
	}
	for base := range k.bases {
		leaveCgroup(base)
	}
	return nil
}

// awaitInput sleeps until there is input or an action is due, and handles the input.
func (k *helperMain) awaitInput(now time.Duration) error {
	fds := []unix.PollFd{{Fd: -1, Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLIN}} // negative descriptors are ignored
	if !k.closed {
		fds[0].Fd = int32(k.in)
	}
	if !k.gone {
		fds[1].Fd = int32(k.replica)
	}
	if _, err := unix.Poll(fds, k.pollTimeout(now)); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("wait for the replica: %w", err)
	}
	if fds[1].Revents != 0 {
		k.noteReplicaEnd()
	}
	for reads := 0; fds[0].Revents != 0 && reads < mostReads; reads++ {
		fds[0].Revents = 0
		full, err := k.readMessages()
		if err != nil {
			return err
		}
		if full { // the replica may be waiting for room in the pipe to send an extension for a run that seems to be late
			_, _ = unix.Poll(fds[:1], 5)
		}
	}
	return nil
}

// mostReads caps the reads in a row. Each reads at most the capacity of the pipe.
const mostReads = 100

// pollTimeout returns the time to sleep in milliseconds, or -1 for no limit.
func (k *helperMain) pollTimeout(now time.Duration) int {
	at, ok := k.list.nextAction()
	switch {
	case k.gone && !ok:
		at = now + lastLook
	case !ok && k.answered == k.done:
		return -1
	case !ok:
		at = now + checkEvery
	}
	wait := min(max(at-now, 0), checkEvery)
	return int((wait + time.Millisecond - 1) / time.Millisecond)
}

// noteReplicaEnd records that the replica has ended.
func (k *helperMain) noteReplicaEnd() {
	if k.gone {
		return
	}
	k.gone, k.goneAt = true, bootTime()
	for _, e := range k.list.runs {
		if e.pause == 0 { // otherwise the run was killed before, and the replica knows
			k.report.Warn("warden kills a run", "reason", k.endReason(), "job", e.job, "run_id", e.name)
		}
	}
}

// endReason returns the reason for the end of the replica, as far as the helper knows it.
func (k *helperMain) endReason() string {
	// A killed process closes its pipe a moment before it is over.
	if len(k.list.runs) == 0 && k.replica >= 0 && !isOver(k.replica) {
		return "the replica has closed its pipe"
	}
	return "the replica is gone"
}

// readMessages handles the replica's messages. All available messages are handled before a run is judged. full reports whether there may be more.
func (k *helperMain) readMessages() (full bool, err error) {
	n, err := unix.Read(k.in, k.buffer)
	switch {
	case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read from the replica: %w", err)
	case n == 0:
		// A child between fork and exec has its own program and environment by now, so search again.
		k.closed = true
		k.noteReplicaEnd()
		k.list.recheckAll(bootTime())
		return false, nil
	}
	all, err := k.input.add(k.buffer[:n])
	for _, m := range all {
		if !k.greeted && m.Verb != hello {
			return false, errors.New("the warden is started by the replica itself")
		}
		k.handleMessage(m)
	}
	return n == len(k.buffer), err
}

func (k *helperMain) handleMessage(m message) {
	switch m.Verb {
	case hello:
		k.greeted, k.replica = true, watchProcess(m.PID)
	case inherit:
		k.bases[m.Cgroup] = true
	case watch:
		k.list.add(m, k.sweeper.newTarget(m.ID, m.Cgroup))
	case ping:
	default:
		k.list.applyMessage(m, bootTime())
	}
	k.done = max(k.done, m.Seq)
}

// sendAck acknowledges all messages so far. If the pipe is full, it is called again later.
func (k *helperMain) sendAck() {
	if k.answered < k.done && k.writeMessage(message{Verb: ack, Seq: k.done}) {
		k.answered = k.done
	}
}

func (k *helperMain) reportAction(what verb, run uint64, e *entry) {
	k.writeMessage(message{Verb: what, Run: run, Name: e.name, Job: e.job, At: bootTime()})
}

// writeMessage reports whether the message was written. A message is shorter than PIPE_BUF, so it is written as a whole or not at all. The replica may be
// gone.
func (k *helperMain) writeMessage(m message) bool {
	_, err := unix.Write(k.out, m.encodeLine())
	return err == nil
}
