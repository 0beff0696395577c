package warden

import (
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

const (
	// beatEvery is the interval of checks of a helper.
	beatEvery = 300 * time.Millisecond
	// mostSilence is the number of checks in a row without progress after which a helper counts as hung. Checks are counted instead of time, because the
	// helper does not hang while this process is stopped. The number is large: on a machine that starts a thousand processes per second the helper may
	// wait for seconds too, and a replacement would be no better.
	mostSilence = 10
	// patience bounds the wait of Reap for its acknowledgement, before the helper is killed. dying bounds the wait for the helper's death after that.
	// Together they are as long as the time after which a helper counts as hung.
	patience, dying = mostSilence*beatEvery - dying, 500 * time.Millisecond
	// farewell bounds the wait for the end of a helper that is no longer needed.
	farewell = time.Second
)

// helper is one helper process, from its start until it was waited for.
type helper struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	told   func(message)
	said   words
	wake   chan struct{} // capacity 1: a message is to be written
	exited chan struct{} // closed when the process was waited for
	dead   chan struct{} // closed when its goroutines have ended as well

	mu      sync.Mutex
	queue   []byte
	leaving bool // close the pipe once the queue is written
	sent    uint64
	acked   uint64
	waits   []wait // ordered by seq
	looked  uint64 // acked at the last check
	silence int    // checks in a row without progress
}

// wait is a wait for the acknowledgement of a message.
type wait struct {
	seq  uint64
	done chan struct{}
}

// reportEnv is set if the helper has the replica's stderr as reportFile. Its value is the format of its log lines, json or text.
const reportEnv = "CRONCLAVE_WARDEN_LOG"

// startHelper executes the program. told is called with each message of the helper, except acknowledgements.
func startHelper(cfg Config, told func(message)) (*helper, error) {
	command := cfg.Command
	h := &helper{told: told, wake: make(chan struct{}, 1), exited: make(chan struct{}), dead: make(chan struct{})}
	h.cmd = exec.Command(command[0], command[1:]...)
	if command[0] == selfExe {
		h.cmd.Args[0] = os.Args[0]
	}
	h.cmd.Dir = "/"
	// Nothing from this process's environment, which may contain secrets. With the race detector, the helper would pause for a second when it ends.
	h.cmd.Env = []string{"GOMAXPROCS=1", "GOGC=50", "GOMEMLIMIT=16MiB", "GORACE=atexit_sleep_ms=0"}
	h.cmd.SysProcAttr = ownSession()
	if cfg.Stderr != nil {
		h.cmd.ExtraFiles = []*os.File{cfg.Stderr} // reportFile of the helper
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

// servePipes serves the pipes until the process has ended, and waits for it.
func (h *helper) servePipes(out io.Reader) {
	defer close(h.dead)
	var writer sync.WaitGroup
	writer.Go(h.writeQueue)
	h.readReports(out) // returns when the helper's end is closed: the process has ended
	h.kill()
	_ = h.cmd.Wait() // the error is part of ProcessState
	close(h.exited)
	writer.Wait()
}

func (h *helper) pid() int { return h.cmd.Process.Pid }

// exitState describes the end of a dead helper.
func (h *helper) exitState() string { return h.cmd.ProcessState.String() }

// kill sends SIGKILL. The channel dead is closed once the helper is dead. The pipe stays open until then, because its end would make the helper kill
// all runs.
func (h *helper) kill() { _ = h.cmd.Process.Kill() }

// dismiss closes the pipe, which ends the helper, and waits for its end.
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

// send queues a message. known is closed when the helper has acted on it.
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

// writeQueue writes the queued messages to the pipe.
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
			_ = h.in.Close() // no run is left to protect
			return
		}
	}
}

// readReports handles the messages of the helper until its end of the pipe is closed.
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

// checkHang is called at each check, and reports whether the helper hangs. If nothing is to be acknowledged, it sends a ping for the next check.
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

// words keeps the beginning of the helper's stderr.
type words struct {
	mu   sync.Mutex
	text []byte
}

// Write never fails. It drops what exceeds the limit.
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
