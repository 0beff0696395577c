package warden

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

const (
	// beatEvery is the interval at which a helper is checked.
	beatEvery = 300 * time.Millisecond
	// mostSilence is the number of successive checks without progress after which a helper counts as hung. A time limit would be wrong, because time also
	// passes while this process is stopped and can't read. The number is large, because on a machine that starts a thousand processes per second the helper
	// may wait for seconds, and a new helper would wait as well.
	mostSilence = 10
	// patience bounds the time that Reap waits for an acknowledgement before it kills the helper. dying bounds the wait for the helper's death after that.
	// Together they equal the time after which a helper counts as hung.
	patience, dying = mostSilence*beatEvery - dying, 500 * time.Millisecond
	// farewell bounds the wait for the exit of a dismissed helper.
	farewell = time.Second
)

// helper is one helper process, from its start until this process has waited for it.
type helper struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	told   func(message)
	said   words
	wake   chan struct{} // capacity 1: signals that messages are queued
	exited chan struct{} // closed when the process was waited for
	dead   chan struct{} // closed when the process was waited for and the goroutines have ended

	mu      sync.Mutex
	queue   []byte
	leaving bool // set by dismiss: writeQueue closes the pipe after it has written the queue
	sent    uint64
	acked   uint64
	waits   []wait // ordered by seq
	looked  uint64 // value of acked at the last check
	silence int    // successive checks without progress
}

// wait is a caller that waits for the acknowledgement of a message.
type wait struct {
	seq  uint64
	done chan struct{}
}

// reportEnv is the environment variable that is set if the helper has the replica's stderr as reportFile. Its value is the format of the log, json or text.
const reportEnv = "CRONCLAVE_WARDEN_LOG"

// startHelper executes the helper. told is called with each message of the helper that is not an acknowledgement.
func startHelper(cfg Config, told func(message)) (*helper, error) {
	command := cfg.Command
	h := &helper{told: told, wake: make(chan struct{}, 1), exited: make(chan struct{}), dead: make(chan struct{})}
	h.cmd = exec.Command(command[0], command[1:]...)
	if command[0] == selfExe {
		h.cmd.Args[0] = os.Args[0]
	}
	h.cmd.Dir = "/"
	// Pass on nothing from this process's environment, which may contain secrets. GORACE prevents a pause of one second at exit under the race detector.
	h.cmd.Env = []string{"GOMAXPROCS=1", "GOGC=50", "GOMEMLIMIT=16MiB", "GORACE=atexit_sleep_ms=0"}
	h.cmd.SysProcAttr = ownSession()
	if cfg.Stderr != nil {
		h.cmd.ExtraFiles = []*os.File{cfg.Stderr} // the helper gets it as the descriptor reportFile
		h.cmd.Env = append(h.cmd.Env, reportEnv+"="+map[bool]string{true: "json", false: "text"}[cfg.JSON])
	}
	h.cmd.Stderr = &h.said
	out, err := h.cmd.StdoutPipe()
	if err == nil {
		h.in, err = h.cmd.StdinPipe()
	}
	if err == nil {
		err = h.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	go h.servePipes(out)
	return h, nil
}

// servePipes reads and writes the pipes until the helper has exited, and then waits for the process.
func (h *helper) servePipes(out io.Reader) {
	defer close(h.dead)
	var writer sync.WaitGroup
	writer.Go(h.writeQueue)
	h.readReports(out) // returns when the helper has exited, which closes the pipe, or has sent an invalid message
	h.kill()
	_ = h.cmd.Wait() // ignore the error: exitState returns the cause
	close(h.exited)
	writer.Wait()
}

func (h *helper) pid() int { return h.cmd.Process.Pid }

func (h *helper) exitState() string { return h.cmd.ProcessState.String() }

// kill sends SIGKILL. After the helper's death, the channel dead is closed. kill leaves the pipe open, because the end of the pipe would make the helper kill
// all runs.
func (h *helper) kill() { _ = h.cmd.Process.Kill() }

// dismiss closes the pipe, which makes the helper exit, and waits until it has exited.
func (h *helper) dismiss() {
	h.mu.Lock()
	h.leaving = true
	h.mu.Unlock()
	h.wakeWriter()
	select {
	case <-h.dead:
		return
	case <-time.After(farewell):
	}
	h.kill()
	<-h.dead
}

// send queues a message for the helper. known is closed when the helper has acted on the message.
func (h *helper) send(m message) (known <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent++
	m.Seq = h.sent
	h.queue = append(h.queue, m.encodeLine()...)
	w := wait{m.Seq, make(chan struct{})}
	h.waits = append(h.waits, w)
	h.wakeWriter()
	return w.done
}

func (h *helper) wakeWriter() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (h *helper) writeQueue() {
	for {
		select {
		case <-h.wake:
		case <-h.exited:
			return
		}
		h.mu.Lock()
		text, leaving := h.queue, h.leaving
		h.queue = nil
		h.mu.Unlock()
		if _, err := h.in.Write(text); err != nil {
			h.kill()
			return
		}
		if leaving {
			_ = h.in.Close() // no run is left that the helper must protect
			return
		}
	}
}

func (h *helper) readReports(out io.Reader) {
	var input lines
	buffer := make([]byte, 4096)
	for {
		n, err := out.Read(buffer)
		if err != nil {
			return
		}
		all, err := input.add(buffer[:n])
		for _, m := range all {
			if m.Verb == ack {
				h.handleAck(m.Seq)
			} else {
				h.told(m)
			}
		}
		if err != nil {
			return
		}
	}
}

func (h *helper) handleAck(seq uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acked = max(h.acked, seq)
	for len(h.waits) > 0 && h.waits[0].seq <= h.acked {
		close(h.waits[0].done)
		h.waits = h.waits[1:]
	}
}

// checkHang reports whether the helper hangs. It is called every beatEvery. If every message is acknowledged, it sends a ping for the next check.
func (h *helper) checkHang() bool {
	h.mu.Lock()
	idle := h.acked == h.sent
	if idle || h.acked > h.looked {
		h.silence = 0
	} else {
		h.silence++
	}
	h.looked = h.acked
	hung := h.silence >= mostSilence
	h.mu.Unlock()
	if idle {
		h.send(message{Verb: ping})
	}
	return hung
}

// words keeps the beginning of the text that the helper wrote to stderr.
type words struct {
	mu   sync.Mutex
	text []byte
}

// Write never fails. It drops the text beyond the limit.
func (w *words) Write(p []byte) (int, error) {
	const enough = 2048
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p[:min(len(p), enough-len(w.text))]...)
	return len(p), nil
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.text)
}

type verb string

const (
	// From the replica to its helper.
	hello   verb = "hello"   // the first message; PID is the PID of the replica
	inherit verb = "inherit" // Cgroup must be removed after the replica has exited
	watch   verb = "watch"   // a run is about to start; a new helper also gets this message for each registered run
	started verb = "started" // PID is the leader of the run's process group, Start its start time
	extend  verb = "extend"  // Deadline is the new deadline; At is the time at which the replica called Extend
	told    verb = "told"    // the replica has sent SIGTERM to the run, so the helper must not send it again
	reap    verb = "reap"    // the leader's PID is about to be freed and must not be signalled any more
	release verb = "release" // no process of the run is left
	ping    verb = "ping"

	// From the helper.
	ack     verb = "ack"     // all messages up to Seq were acted on
	stopped verb = "stopped" // the run got SIGTERM at At, because its deadline is near
	killed  verb = "killed"  // the run got SIGKILL at At, because its deadline is very near
)

// message is one line of JSON on a pipe, in either direction. Times are on CLOCK_BOOTTIME.
type message struct {
	Verb     verb          `json:"verb"`
	Seq      uint64        `json:"seq,omitempty"`
	Run      uint64        `json:"run,omitempty"`  // number that the warden gave to the run
	Name     string        `json:"name,omitempty"` // id of the run, for the log
	Job      string        `json:"job,omitempty"`
	ID       string        `json:"id,omitempty"`
	Cgroup   string        `json:"cgroup,omitempty"`
	PID      int           `json:"pid,omitempty"`
	Start    uint64        `json:"start,omitempty"`
	Deadline time.Duration `json:"deadline,omitempty"`
	At       time.Duration `json:"at,omitempty"`
	Lease    time.Duration `json:"lease,omitempty"`
	Grace    time.Duration `json:"grace,omitempty"`
	Told     bool          `json:"told,omitempty"`
}

func (m message) encodeLine() []byte {
	text, _ := json.Marshal(m) // can't fail for strings and numbers
	return append(text, '\n')
}

// longestLine exceeds the length of any message: a path has at most 4 KiB, and JSON encodes a byte in at most six bytes.
const longestLine = 64 << 10

type lines struct{ rest []byte }

// add adds input and returns the messages that are complete.
func (l *lines) add(piece []byte) ([]message, error) {
	l.rest = append(l.rest, piece...)
	var all []message
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte{'\n'})
		if !ok {
			break
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return all, fmt.Errorf("message %.80q: %w", line, err)
		}
		all = append(all, m)
		l.rest = rest
	}
	if len(l.rest) > longestLine {
		return all, fmt.Errorf("message %.80q has no end", l.rest)
	}
	l.rest = append([]byte(nil), l.rest...) // copied to release the memory of the earlier input
	return all, nil
}
