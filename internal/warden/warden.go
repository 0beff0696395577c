// Package warden guarantees what a process can't guarantee by itself: the processes of its runs die with it, and they are dead before the leases of the runs
// end, even if the process is suspended or hangs.
//
// A [Warden] runs a small helper process: the same binary, executed again. Each run is registered with the helper before its program starts. The helper kills
//
//   - a run whose lease is about to end without an extension, because this process is stopped (SIGSTOP) or hangs;
//   - all runs at once when this process has exited. The helper detects this by a pidfd and by the end of the pipe.
//
// The messages on the pipe are numbered lines of JSON. The helper acknowledges each message after it has acted on it. A helper that dies or does not answer
// is replaced, and the new helper gets the whole state. Until then [Warden.Ready] returns false.
//
// All of this works on Linux. On macOS only the process group of a run is killed, as in package process.
package warden

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/selffence"
)

// Subcommand is the argument with which the default command of [Config] starts the helper. The program must then call [Main].
const Subcommand = "warden"

var (
	// ErrGone reports that helpers died too many times in a row, so that no other helper is started.
	ErrGone = errors.New("the warden can't be kept alive")
	// ErrClosed reports that the warden was closed.
	ErrClosed = errors.New("the warden was closed")
)

// Config configures a [Warden].
type Config struct {
	// Command is a program that calls [Main], with its arguments. Defaults to this program with the argument "warden".
	Command []string
	// Logger receives messages about helpers that were replaced, and about runs that a helper stopped or killed. Defaults to none.
	Logger hclog.Logger
	// Stderr is the file to which the helper logs when this process has exited. nil means no log. The log is JSON if JSON is set, otherwise text. Lines that
	// Stderr does not accept are lost.
	Stderr *os.File
	JSON   bool
	// OnChange is called when the result of [Warden.Ready] changes. Calls do not overlap. OnChange must not wait for the warden. May be nil.
	OnChange func(ready bool)
}

// Run describes a run for the helper, before the run starts.
type Run struct {
	// Name is the id of the run, and Job the name of its job. Both are only used in the log.
	Name, Job string
	// ID is the CRONCLAVE_RUN_ID in the environment of the run's processes, or "" if they can't be found by this variable.
	ID string
	// Cgroup is the directory of the run's cgroup, or "". The helper removes it if it has to kill the run.
	Cgroup string
	// Deadline is the time on CLOCK_BOOTTIME at which the run must be dead. 0 means that the run is only killed after this process has exited. The helper sends
	// SIGTERM at Deadline minus Grace, or at Deadline minus a third of Lease if that is later. It sends SIGKILL at Deadline minus a fortieth of Lease, but at
	// least 25 ms before Deadline.
	Deadline, Lease, Grace time.Duration
}

func (r *Run) killAt() time.Duration {
	return r.Deadline - selffence.Limits{Lease: r.Lease}.WardenKill()
}

// Warden runs the helper. It is safe for concurrent use. If a helper hangs, [Ward.Known] waits for its replacement, for fifteen seconds at most. The other
// methods of Warden and [Ward] wait at most three seconds for a hanging helper.
type Warden struct {
	cfg    Config
	life   context.Context // canceled by Close
	end    context.CancelFunc
	failed chan struct{} // closed when helpers keep dying; stays open if the warden was closed
	keeper sync.WaitGroup

	mu      sync.Mutex
	helper  *helper // receives all changes; nil if no helper is running
	ready   bool    // whether the helper has the whole state
	changed chan struct{}
	failure error    // set once no other helper will be started
	bases   []string // cgroups to remove after this process has exited
	wards   map[uint64]*Ward
	latest  uint64
}

const (
	// mostFailures caps the helpers in a row that fail. After one more, no other helper is started.
	mostFailures = 8
	// steady is the time after its start for which a helper must live. Otherwise it has failed.
	steady = 5 * time.Second
	// The pauses between starts of helpers double from firstPause to lastPause. The first replacement is started at once.
	firstPause, lastPause = 20 * time.Millisecond, time.Second
	// startTime bounds the wait for a new helper's first answer.
	startTime = 10 * time.Second
	// watchTime bounds the time that a run waits for the warden before its start.
	watchTime = 15 * time.Second
)

// Start starts a helper and returns when the helper has answered. [Warden.Close] ends the helper.
func Start(cfg Config) (*Warden, error) {
	cfg.Logger = cmp.Or[hclog.Logger](cfg.Logger, hclog.NewNullLogger())
	if cfg.OnChange == nil {
		cfg.OnChange = func(bool) {}
	}
	if len(cfg.Command) == 0 {
		self, err := ownProgram()
		if err != nil {
			return nil, fmt.Errorf("find this program, which is the warden, too: %w", err)
		}
		cfg.Command = []string{self, Subcommand}
	}
	w := &Warden{cfg: cfg, changed: make(chan struct{}), failed: make(chan struct{}), wards: map[uint64]*Ward{}}
	w.life, w.end = context.WithCancel(context.Background())
	h, err := w.launchHelper()
	if err != nil {
		w.end()
		return nil, fmt.Errorf("start the warden: %w", err)
	}
	w.setHelper(h, true)
	w.keeper.Go(func() { w.keepHelper(h) })
	return w, nil
}

const selfExe = "/proc/self/exe"

// ownProgram returns a path that executes the running program, even if its file was replaced after the start.
func ownProgram() (string, error) {
	if runtime.GOOS == "linux" {
		return selfExe, nil
	}
	return os.Executable()
}

// Ready reports whether a helper watches all runs. While it returns false, no run should start.
func (w *Warden) Ready() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ready
}

// PID returns the process id of the helper, or 0 if there is none.
func (w *Warden) PID() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.helper == nil {
		return 0
	}
	return w.helper.pid()
}

// Failed returns a channel that is closed when helpers keep dying and no other helper is started. [Warden.Err] then returns the reason.
func (w *Warden) Failed() <-chan struct{} { return w.failed }

// Err returns [ErrGone] or [ErrClosed] if no other helper will be started. Otherwise it returns nil.
func (w *Warden) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failure
}

// Close ends the helper and waits until it has exited. Release all runs first: a run that is still watched is killed.
func (w *Warden) Close() {
	w.end()
	w.keeper.Wait()
}

const actionTime = "2006-01-02T15:04:05.000Z07:00"

// keepHelper supervises one helper after another until the warden is closed or the helpers keep dying.
func (w *Warden) keepHelper(h *helper) {
	failures := 0
	for {
		begun := time.Now()
		if h != nil {
			w.attendHelper(h)
		}
		if w.life.Err() != nil {
			w.setFailure(ErrClosed)
			return
		}
		if time.Since(begun) >= steady {
			failures = 0
		}
		if failures++; failures > mostFailures {
			w.cfg.Logger.Error("warden keeps dying", "attempts", failures)
			w.setFailure(ErrGone)
			close(w.failed)
			return
		}
		if failures > 1 {
			backoff.Sleep(w.life, min(firstPause<<(failures-2), lastPause))
		}
		var err error
		if h, err = w.launchHelper(); err != nil {
			w.cfg.Logger.Error("warden not started", "error", err)
			continue
		}
		w.setHelper(h, true)
		w.cfg.Logger.Info("warden replaced", "pid", h.pid())
	}
}

// attendHelper checks a helper and returns when the helper is dead: it died by itself, was killed because it hung, or was dismissed.
func (w *Warden) attendHelper(h *helper) {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for alive := true; alive; {
		select {
		case <-w.life.Done():
			h.dismiss()
			alive = false
		case <-h.dead:
			alive = false
		case <-beat.C:
			if h.checkHang() {
				w.cfg.Logger.Warn("warden does not answer; replacing it", "pid", h.pid())
				h.kill()
			}
		}
	}
	w.clearHelper()
	if w.life.Err() != nil {
		w.cfg.Logger.Debug("warden ended", "pid", h.pid(), "state", h.exitState(), "reason", "closed")
	}
	if w.life.Err() == nil {
		w.cfg.Logger.Warn("warden ended; no run starts until it is replaced", "pid", h.pid(), "state", h.exitState(), "said", h.said.String())
	}
}

// clearHelper removes a dead helper and sets ready to false in one step, because a ready warden without a helper would let runs start unprotected.
func (w *Warden) clearHelper() { w.setHelper(nil, false) }

// launchHelper starts a helper, sends it the whole state, and returns when the helper has acknowledged the state.
func (w *Warden) launchHelper() (*helper, error) {
	h, err := startHelper(w.cfg, w.handleReport)
	if err != nil {
		return nil, err
	}
	known := w.sendState(h)
	patience, cancel := context.WithTimeout(w.life, startTime)
	defer cancel()
	select {
	case <-known:
		return h, nil
	case <-h.dead:
		err = fmt.Errorf("it ended: %s: %s", h.exitState(), h.said.String())
	case <-patience.Done():
		h.kill()
		<-h.dead
		err = fmt.Errorf("no answer: %w", patience.Err())
	}
	w.clearHelper()
	return nil, err
}

// sendState sends the whole state to a helper. From then on, the helper receives all changes.
func (w *Warden) sendState(h *helper) (known <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known = h.send(message{Verb: hello, PID: os.Getpid()})
	for _, base := range w.bases {
		known = h.send(message{Verb: inherit, Cgroup: base})
	}
	for _, ward := range w.wards {
		known = h.send(ward.stateMessage())
	}
	w.helper = h
	return known
}

func (w *Warden) handleReport(m message) {
	w.mu.Lock()
	if ward := w.wards[m.Run]; ward != nil {
		ward.late = true
		if m.Verb == killed {
			ward.killed = m.At
		}
	}
	w.mu.Unlock()
	// This process may have been suspended since the action, so the log line also contains the time of the action.
	at := time.Now().Add(m.At - bootTime()).UTC().Format(actionTime)
	args := []any{"job", m.Job, "run_id", m.Name, "at", at, "reason", "its lease was about to end, and no extension came"}
	switch m.Verb {
	case stopped:
		w.cfg.Logger.Warn("warden stopped a run", append(args, "signal", "SIGTERM")...)
	case killed:
		w.cfg.Logger.Warn("warden killed a run", append(args, "signal", "SIGKILL")...)
	}
}

func (w *Warden) setHelper(h *helper, ready bool) {
	w.mu.Lock()
	different := w.ready != ready
	w.helper, w.ready = h, ready
	w.wakeWaiters()
	w.mu.Unlock()
	if different {
		w.cfg.OnChange(ready)
	}
}

func (w *Warden) setFailure(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failure = why
	w.wakeWaiters()
}

// wakeWaiters wakes all goroutines that wait for a change. The caller holds mu.
func (w *Warden) wakeWaiters() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// awaitHelper waits for a helper that has the whole state. The previous helper, dead, does not count.
func (w *Warden) awaitHelper(ctx context.Context, dead *helper) error {
	for {
		w.mu.Lock()
		ready, failure, changed := w.ready && w.helper != dead, w.failure, w.changed
		w.mu.Unlock()
		switch {
		case failure != nil:
			return failure
		case ready:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
