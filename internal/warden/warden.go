// Package warden keeps a promise that a process can't keep by itself: the processes of its jobs die with it, and they are dead before their leases
// end even if the process stands still.
//
// A [Warden] runs a small helper process: the same binary, executed again. The helper knows each run before its program starts. It kills
//
//   - a run whose lease is about to end without an extension, because this process is stopped (SIGSTOP) or hangs;
//   - all runs at once when this process has ended. The helper learns this from a pidfd and from the end of the pipe.
//
// The messages in the pipe are numbered lines of JSON. The helper acknowledges each one after it has acted on it. A helper that dies or does not
// answer is replaced, and the next one gets the whole state. Until then there is no warden, and [Warden.Ready] returns false.
//
// All of this works on Linux. On macOS a run is only its process group, as in package command.
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

// Subcommand is the argument with which a program must call [Main].
const Subcommand = "warden"

var (
	// ErrGone reports that the helper has died too many times in a row, and is not started any more.
	ErrGone = errors.New("the warden can't be kept alive")
	// ErrClosed reports that the warden was closed.
	ErrClosed = errors.New("the warden was closed")
)

// Config configures a [Warden].
type Config struct {
	// Command is the program, with arguments, that calls [Main]. Defaults to this program with the argument "warden".
	Command []string
	// Logger receives messages about helpers that were replaced and about runs that they stopped or killed. Defaults to none.
	Logger hclog.Logger
	// Stderr is the file to which the helper itself logs when this process is gone, as text or, if JSON is set, as JSON. Writes to it may fail. Defaults
	// to none.
	Stderr *os.File
	JSON   bool
	// OnChange is called when [Warden.Ready] changes, by one goroutine at a time. It must not wait for the warden. May be nil.
	OnChange func(ready bool)
}

// Run describes a run to the helper before the run starts.
type Run struct {
	// Name is the id of the run, Job the name of its job. Both are for people.
	Name, Job string
	// ID is the CRONCLAVE_RUN_ID in the environment of the run's processes, or "" if they can't be found by it.
	ID string
	// Cgroup is the directory of the run's cgroup, or "". It is removed if the run has to be killed.
	Cgroup string
	// Deadline is the time on CLOCK_BOOTTIME at which the run must be dead. 0 means that only the end of this process ends it. The run gets SIGTERM
	// before the deadline, earlier by Grace or by a third of Lease, whichever is less. It gets SIGKILL earlier by a fortieth of Lease, but at least 25
	// ms.
	Deadline, Lease, Grace time.Duration
}

// killAt returns the time at which the helper kills the run.
func (r *Run) killAt() time.Duration {
	return r.Deadline - selffence.Limits{Lease: r.Lease}.WardenKill()
}

// Warden owns the helper. It is safe for concurrent use. If a helper hangs, [Ward.Known] waits until it is replaced, for fifteen seconds at most. No
// other method of Warden or [Ward] waits for a hanging helper for more than three seconds.
type Warden struct {
	cfg    Config
	life   context.Context // ends with Close
	end    context.CancelFunc
	failed chan struct{} // closed when no helper can be kept alive, unless the warden was closed
	keeper sync.WaitGroup

	mu      sync.Mutex
	helper  *helper // receiver of all changes; nil if there is none
	ready   bool    // whether the helper knows the whole state
	changed chan struct{}
	failure error    // reason for which there will be no other helper
	bases   []string // cgroups to remove after the end of this process
	wards   map[uint64]*Ward
	latest  uint64
}

const (
	// mostFailures caps the helpers in a row that live for less than steady.
	mostFailures = 8
	steady       = 5 * time.Second
	// The pauses between starts of helpers double from the first to the last. The first replacement is started at once.
	firstPause, lastPause = 20 * time.Millisecond, time.Second
	// startTime bounds the wait for the first answer of a helper.
	startTime = 10 * time.Second
	// watchTime bounds the wait of a run for the warden.
	watchTime = 15 * time.Second
)

// Start starts a helper, and returns when it answers. [Warden.Close] ends it.
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

// ownProgram returns a path that executes this program, even if its file was replaced meanwhile.
func ownProgram() (string, error) {
	if runtime.GOOS == "linux" {
		return selfExe, nil
	}
	return os.Executable()
}

// Ready reports whether a helper watches all runs. If it returns false, no run should start.
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

// Failed returns a channel that is closed when no helper can be kept alive. Then [Warden.Err] returns the reason.
func (w *Warden) Failed() <-chan struct{} { return w.failed }

// Err returns [ErrGone] or [ErrClosed] if there will be no other helper, and nil otherwise.
func (w *Warden) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failure
}

// Close ends the helper and waits for it. Release all runs before: a run that is still watched is killed.
func (w *Warden) Close() {
	w.end()
	w.keeper.Wait()
}
