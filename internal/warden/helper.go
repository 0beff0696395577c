package warden

import (
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

const (
	// beatEvery is how often a helper is looked after.
	beatEvery = 300 * time.Millisecond
	// mostSilence is how many looks in a row may find no progress while an answer is due. Looks are counted, and not time: when
	// this process was stopped, the helper did not hang. They are many, since on a machine that starts a thousand processes a
	// second the helper may wait for seconds too, and its replacement would do no better.
	mostSilence = 10
	// patience is how long the acknowledgement of a Reap is waited for before the helper is killed, and dying how long its death is waited
	// for then: no longer in all than for a helper that hangs.
	patience, dying = mostSilence*beatEvery - dying, 500 * time.Millisecond
	// farewell is how long the end of a helper that is not needed any more is waited for.
	farewell = time.Second
)

// helper is one process, from its start until it was waited for.
type helper struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	told   func(message)
	said   words
	wake   chan struct{} // capacity 1: something is to be written
	exited chan struct{} // closed when it was waited for
	dead   chan struct{} // closed when nothing of ours is left of it, either

	mu      sync.Mutex
	queue   []byte
	leaving bool // the pipe is to be closed once the queue is written
	sent    uint64
	acked   uint64
	waits   []wait // in the order of their numbers
	looked  uint64 // the latest acknowledgement at the last look
	silence int    // looks in a row without progress
}

// wait is for the acknowledgement of a message.
type wait struct {
	seq  uint64
	done chan struct{}
}

// reportEnv is set if the helper has the replica's stderr as its first file beyond its own. Its value is the form in which to log there: json or
// text.
const reportEnv = "CRONCLAVE_WARDEN_LOG"

// startHelper executes the program. told is called with what the helper says beside acknowledgements.
func startHelper(cfg Config, told func(message)) (*helper, error) {
	command := cfg.Command
	h := &helper{told: told, wake: make(chan struct{}, 1), exited: make(chan struct{}), dead: make(chan struct{})}
	h.cmd = exec.Command(command[0], command[1:]...)
	if command[0] == selfExe {
		h.cmd.Args[0] = os.Args[0]
	}
	h.cmd.Dir = "/"
	// Nothing of our own, which has secrets. A helper with the race detector would pause for a second at its end.
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
	go h.attend(out)
	return h, nil
}

// attend serves the pipes until the process has ended, and waits for it.
func (h *helper) attend(out io.Reader) {
	defer close(h.dead)
	var writer sync.WaitGroup
	writer.Go(h.write)
	h.read(out) // until its end is closed: the process has ended
	h.kill()
	_ = h.cmd.Wait() // the error is in state
	close(h.exited)
	writer.Wait()
}

func (h *helper) pid() int { return h.cmd.Process.Pid }

// state returns how it ended, once it is dead.
func (h *helper) state() string { return h.cmd.ProcessState.String() }

// kill is SIGKILL; dead is closed when it is. While it lives the pipe stays open, whose end is the end of all runs.
func (h *helper) kill() { _ = h.cmd.Process.Kill() }

// dismiss closes the pipe, which ends the helper, and waits.
func (h *helper) dismiss() {
	h.mu.Lock()
	h.leaving = true
	h.mu.Unlock()
	h.rouse()
	select {
	case <-h.dead:
		return
	case <-time.After(farewell):
	}
	h.kill()
	<-h.dead
}

// send queues a message; known is closed when it was acted on.
func (h *helper) send(m message) (known <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent++
	m.Seq = h.sent
	h.queue = append(h.queue, m.line()...)
	w := wait{m.Seq, make(chan struct{})}
	h.waits = append(h.waits, w)
	h.rouse()
	return w.done
}

func (h *helper) rouse() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// write writes the queued messages.
func (h *helper) write() {
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
			_ = h.in.Close() // no run was left to protect
			return
		}
	}
}

// read takes in what the helper says, until it says no more.
func (h *helper) read(out io.Reader) {
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
				h.acknowledge(m.Seq)
			} else {
				h.told(m)
			}
		}
		if err != nil {
			return
		}
	}
}

func (h *helper) acknowledge(seq uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acked = max(h.acked, seq)
	for len(h.waits) > 0 && h.waits[0].seq <= h.acked {
		close(h.waits[0].done)
		h.waits = h.waits[1:]
	}
}

// hangs is asked at each look. It makes sure that there is something to be answered.
func (h *helper) hangs() bool {
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

// words keeps the beginning of what a helper writes to its stderr.
type words struct {
	mu   sync.Mutex
	text []byte
}

// Write takes it all.
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
