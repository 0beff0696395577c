//go:build linux || darwin

package warden

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/logging"
	"github.com/cronclave/cronclave/internal/proc"
)

const (
	// checkEvery bounds the sleep while there are deadlines, because poll's timeout does not advance during suspend.
	checkEvery = 200 * time.Millisecond
	// giveUp bounds the wait, after the exit of the replica, for processes that survive SIGKILL because they hang in the kernel.
	giveUp = time.Minute
)

// Main runs the helper. It reads messages about runs from in, writes acknowledgements and reports to out, and kills runs. It returns when the replica has
// exited and no process of its runs is left. The process must be used for nothing else, because Main changes its signal handling, its working directory and
// its open files.
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

// helperMain is the state of the helper. Only one goroutine uses it.
type helperMain struct {
	report  *report
	in, out int
	buffer  []byte
	input   lines
	list    watchlist
	sweeper *sweeper
	bases   map[string]bool // cgroups to remove when the replica has exited

	replica  int    // pidfd of the replica, or -1
	greeted  bool   // whether hello was read
	done     uint64 // number of the last message that was acted on
	answered uint64 // number of the last message that was acknowledged
	closed   bool   // end of file on the pipe: the replica is gone, and all of its forked children have executed their programs or exited
	gone     bool   // the replica has exited
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
		if k.answered < k.done && k.writeMessage(message{Verb: ack, Seq: k.done}) { // if the pipe is full, a later pass acknowledges
			k.answered = k.done
		}
	}
	if len(k.list.runs) > 0 {
		k.report.Warn("warden ends", "reason", k.endReason(), "runs_killed", len(k.list.runs))
	}
	for base := range k.bases {
		_ = proc.RemoveCgroup(base) // remaining processes hang in the kernel; the next replica removes the cgroup
	}
	for base := range k.bases {
		leaveCgroup(base)
	}
	return nil
}

func (k *helperMain) awaitInput(now time.Duration) error {
	fds := []unix.PollFd{{Fd: -1, Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLIN}} // poll ignores negative descriptors
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
		if full { // the replica may be waiting for space in the pipe, to send an extension for a run that seems to be late
			_, _ = unix.Poll(fds[:1], 5)
		}
	}
	return nil
}

// mostReads caps the number of successive reads, so that a steady stream of messages does not delay kills.
const mostReads = 100

// pollTimeout returns the timeout of poll in milliseconds, or -1 for no timeout.
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

func (k *helperMain) noteReplicaEnd() {
	if k.gone {
		return
	}
	k.gone, k.goneAt = true, bootTime()
	for _, e := range k.list.runs {
		if e.pause == 0 { // otherwise the run was killed before, and the replica got a report
			k.report.Warn("warden kills a run", "reason", k.endReason(), "job", e.job, "run_id", e.name)
		}
	}
}

func (k *helperMain) endReason() string {
	// A replica that calls [Warden.Close] closes the pipe without a run, and lives on. If a run is left, the replica counts as gone even if its pidfd does
	// not show the exit yet, because a dying process closes its pipe a moment earlier.
	if len(k.list.runs) == 0 && k.replica >= 0 && !isOver(k.replica) {
		return "the replica has closed its pipe"
	}
	return "the replica is gone"
}

// readMessages handles messages of the replica. All available messages must be handled before judgeRuns, because one of them may extend a run that seems to be
// late. full reports whether there may be more.
func (k *helperMain) readMessages() (full bool, err error) {
	n, err := unix.Read(k.in, k.buffer)
	switch {
	case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read from the replica: %w", err)
	case n == 0:
		// End of file: no process holds the write end of the pipe any more.
		// A child that was between fork and exec has executed its program by now, so its environment shows its run. Search again.
		k.closed = true
		k.noteReplicaEnd()
		for _, e := range k.list.runs {
			e.clean, e.pause, e.again = 0, firstLook, bootTime()
		}
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

func (k *helperMain) reportAction(what verb, run uint64, e *entry) {
	k.writeMessage(message{Verb: what, Run: run, Name: e.name, Job: e.job, At: bootTime()})
}

// writeMessage writes a message and reports whether it succeeded. A message is shorter than PIPE_BUF, so it is written completely or not at all. The write
// fails if the pipe is full or the replica is gone.
func (k *helperMain) writeMessage(m message) bool {
	_, err := unix.Write(k.out, m.encodeLine())
	return err == nil
}

const (
	// reportFile is the descriptor of the replica's stderr. It is open if reportEnv is set.
	reportFile = 3
	// lastReport bounds the wait for queued log lines at the end of the helper.
	lastReport = 200 * time.Millisecond
)

// report is the helper's log, for actions after the replica has exited. It never blocks the helper: lines that stderr does not accept are dropped.
type report struct {
	hclog.Logger
	writer *logging.Writer // nil if the helper has no log
}

func openReport() *report {
	format := os.Getenv(reportEnv)
	if format == "" {
		return &report{Logger: hclog.NewNullLogger()}
	}
	unix.CloseOnExec(reportFile)
	log, writer := logging.New(os.NewFile(reportFile, "stderr"), logging.Options{Level: hclog.Info, JSON: format == "json"})
	return &report{log, writer}
}

func (r *report) closeWriter() {
	if r.writer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastReport)
	defer cancel()
	r.writer.Close(ctx)
}

// isOver reports whether the process of a pidfd has exited.
func isOver(handle int) bool {
	fds := []unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// ownSession starts the helper in a session of its own, so that it gets no signals that are meant for the replica's process group or terminal.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
