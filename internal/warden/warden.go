// Package warden guarantees what a process can't guarantee by itself: the processes of its runs die with it, and they are dead before their leases end even
// if the process is suspended or hangs.
//
// A [Warden] runs a small helper process: the same binary, executed again. Each run is registered with the helper before its program starts. The helper kills
//
//   - a run whose lease is about to end without an extension, because this process is stopped (SIGSTOP) or hangs;
//   - all runs at once when this process has exited. The helper detects this by a pidfd and by the end of the pipe.
//
// The messages on the pipe are numbered lines of JSON. The helper acknowledges each message after it has acted on it. A helper that dies or does not answer
// is replaced, and the new helper gets the whole state. Until then [Warden.Ready] returns false.
//
// All of this works on Linux. On macOS only the process group of a run is killed, as in package command.
package warden

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

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
	// Stderr is the file to which the helper logs when this process has exited. nil means no log. The log is JSON if JSON is set, otherwise text. Writes to
	// Stderr may fail.
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
	// Deadline is the time on CLOCK_BOOTTIME at which the run must be dead. 0 means that the run is only killed after this process has exited. SIGTERM is
	// sent before the deadline, earlier by Grace or by a third of Lease, whichever is less. SIGKILL is sent before the deadline, earlier by a fortieth of
	// Lease, but at least 25 ms.
	Deadline, Lease, Grace time.Duration
}

// killAt returns the time at which the helper kills the run.
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
	failure error    // the error for which no other helper will be started
	bases   []string // cgroups to remove after this process has exited
	wards   map[uint64]*Ward
	latest  uint64
}

const (
	// mostFailures caps the number of successive helpers that each live for less than steady.
	mostFailures = 8
	steady       = 5 * time.Second
	// The pauses between starts of helpers double from firstPause to lastPause. The first replacement is started at once.
	firstPause, lastPause = 20 * time.Millisecond, time.Second
	// startTime bounds the wait for a new helper's first answer.
	startTime = 10 * time.Second
	// watchTime bounds the time that a run waits for the warden before its start.
	watchTime = 15 * time.Second
)

// Start starts a helper and returns when the helper has answered. [Warden.Close] ends the helper.
func Start(cfg Config) (*Warden, error) {
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
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
