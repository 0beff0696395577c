// Package warden keeps a promise that a process can't keep by itself: that its jobs die with it, and that they are dead
// before their leases end also when it stands still.
//
// A [Warden] runs a small helper beside this process: the same binary, executed again. The helper knows of every run
// before its program starts. It kills
//
//   - a run whose lease nears its end without an extension: this process was stopped (SIGSTOP), or hangs;
//   - all runs at once when this process is gone, which it learns from a handle of it and from the end of the pipe.
//
// The messages in the pipe are lines of JSON, numbered; the helper acknowledges each when it has acted on it. A helper that
// dies, or does not answer, is replaced, and its successor gets the whole state; until then there is no warden, and
// [Warden.Ready] says so.
//
// It is Linux's in full. On macOS a run is its process group, as in package command.
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

// Subcommand is the argument with which a program is to call [Main].
const Subcommand = "warden"

var (
	// ErrGone says that the helper has ended, again and again, and is not started any more.
	ErrGone = errors.New("the warden can't be kept alive")
	// ErrClosed says that the warden was closed.
	ErrClosed = errors.New("the warden was closed")
)

// Config is what a [Warden] needs.
type Config struct {
	// Command is the program and the arguments that lead to [Main]. Defaults to this program with the argument "warden".
	Command []string
	// Logger is told of a helper that had to be replaced, and of runs that it has killed. Defaults to none.
	Logger hclog.Logger
	// Stderr is where the helper itself logs its actions when this process is gone; writes to it may fail. Defaults to none. With JSON set it logs
	// JSON.
	Stderr *os.File
	JSON   bool
	// OnChange is called when [Warden.Ready] changes, by one goroutine at a time. It must not wait for the warden. May be nil.
	OnChange func(ready bool)
}

// Run is what the helper has to know of a run before it starts.
type Run struct {
	// Name is the run's, and Job its job's, for people.
	Name, Job string
	// ID is the CRONCLAVE_RUN_ID in the environment of the run's processes; "" if they are not to be told by it.
	ID string
	// Cgroup is the directory of the run's cgroup; "" if it has none. It is removed if the run has to be killed.
	Cgroup string
	// Deadline is when the run must be dead, by CLOCK_BOOTTIME; 0 if only the end of this process ends it. It gets SIGTERM min(Grace,
	// Lease/3) before that, and SIGKILL a fortieth of Lease (at least 25 ms) before it.
	Deadline, Lease, Grace time.Duration
}

// killAt is when the helper kills the run.
func (r *Run) killAt() time.Duration {
	return r.Deadline - selffence.Limits{Lease: r.Lease}.WardenKill()
}

// Warden is the owner of the helper. It is safe for concurrent use. Of its methods and those of a [Ward] only [Ward.Known] waits for a
// helper that hangs for longer than three seconds, for as long as it takes to replace it: fifteen seconds at most.
type Warden struct {
	cfg    Config
	life   context.Context // ends with Close
	end    context.CancelFunc
	failed chan struct{} // closed when no helper can be kept alive and the warden was not closed
	keeper sync.WaitGroup

	mu      sync.Mutex
	helper  *helper // the receiver of all changes; nil while there is none
	ready   bool    // it knows all
	changed chan struct{}
	failure error    // there will be no helper any more
	bases   []string // cgroups to remove when we are gone
	wards   map[uint64]*Ward
	latest  uint64
}

const (
	// mostFailures is how many helpers in a row may fail to live for as long as steady.
	mostFailures = 8
	steady       = 5 * time.Second
	// The pauses before another helper is started double from the first to the last; the first replacement is started at once.
	firstPause, lastPause = 20 * time.Millisecond, time.Second
	// startTime is how long a helper may take to answer for the first time.
	startTime = 10 * time.Second
	// watchTime is how long a run waits for a warden.
	watchTime = 15 * time.Second
)

// Start starts a helper and returns when it answers. [Warden.Close] ends it.
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
	h, err := w.launch()
	if err != nil {
		w.end()
		return nil, fmt.Errorf("start the warden: %w", err)
	}
	w.change(h, true)
	w.keeper.Go(func() { w.keep(h) })
	return w, nil
}

const selfExe = "/proc/self/exe"

// ownProgram is this program, also if its file was replaced meanwhile.
func ownProgram() (string, error) {
	if runtime.GOOS == "linux" {
		return selfExe, nil
	}
	return os.Executable()
}

// Ready returns whether a helper watches over all runs. While it does not, nothing should be started.
func (w *Warden) Ready() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ready
}

// PID is the helper's; 0 while there is none.
func (w *Warden) PID() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.helper == nil {
		return 0
	}
	return w.helper.pid()
}

// Failed is closed when the helper can't be kept alive: [Warden.Err] is why.
func (w *Warden) Failed() <-chan struct{} { return w.failed }

// Err says why there will be no helper any more: [ErrGone] or [ErrClosed]; nil while there is hope.
func (w *Warden) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failure
}

// Close ends the helper and waits for it. It is called when all runs are released: any that is not is killed.
func (w *Warden) Close() {
	w.end()
	w.keeper.Wait()
}
